"""Write vectors as nodes of a data set without an edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from configs.layout_options import LAYOUT
from tasks.ingest.dataset_fields import dataset_fields
from tasks.ingest.labels import usual_metric
from tasks.ingest.vectors.gathered import Gathered
from tasks.ingest.writer import DatasetWriter
from tasks.storage.manifests import SPLITS, EdgeType, FeatureColumn, NodeType

NODE, RELATION = "vector", "near"


def write_vectors(gathered: Gathered, title: str, folder: Path) -> dict[str, Any]:
    """Write the tables into a folder; return the fields of DatasetManifest. Raises DataError."""
    task_type, label, names = gathered.labels
    edges = EdgeType(source=NODE, relation=RELATION, target=NODE, num_edges=0)
    first = dim = 0
    with DatasetWriter(folder) as writer:
        with writer.table(f"nodes/{NODE}") as table:
            for chunk in gathered.chunks():
                end, dim = first + len(chunk), chunk.shape[1]
                columns = {"node_id": np.arange(first, end, dtype=np.int64), "feat": chunk}
                if task_type != LAYOUT:
                    columns["label"] = label[first:end]
                columns |= {name: values.slice(first, len(chunk)) for name, values in gathered.kept.items()}
                table.write(columns)
                first = end
        if first != gathered.num_rows:
            raise DataError(f"{title}: {first:,} vectors were read, and {gathered.num_rows:,} rows are there")
        if gathered.ids is not None:
            writer.write(f"ids/{NODE}", {"node_id": np.arange(first, dtype=np.int64), "original_id": gathered.ids})
        if names is not None:
            writer.write("classes", {"label": np.arange(len(names), dtype=np.int64), "name": names})
        none = np.empty(0, np.int32)
        writer.write(f"edges/{edges.name}", {"src": none, "dst": none, "weight": np.empty(0, np.float32)})
    feature = FeatureColumn(column="feat", kind="numeric", dim=dim)
    return dataset_fields(
        writer,
        title,
        task_type,
        task=LAYOUT,
        num_classes=0 if names is None else len(names),
        num_tasks=1,
        metric=usual_metric(LAYOUT),
        node_types=[NodeType(name=NODE, num_nodes=first, features=(feature,))],
        edge_types=[edges],
        checks=[],
        splits=dict.fromkeys(SPLITS, 0),
    )
