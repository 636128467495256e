"""What ingest and train leave behind, for tests of the stages after them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from configs.registry import MODELS
from models.base import GraphModel
from tasks.ingest.triple_tables import write_relations
from tasks.ingest.writer import DatasetWriter
from tasks.stage import Parent
from tasks.storage.artifacts import describe_files
from tasks.storage.graph_facts import graph_facts
from tasks.storage.manifests import DatasetManifest, NodeType
from tasks.storage.outcomes import RunResult
from tasks.train.state.checkpoint import best_state, save_atomic
from tests.support import COMMON


def dataset(
    folder: Path,
    graph: Parent,
    ids: list[Any] | None = None,
    classes: list[str] | None = None,
    graphs: list[str] | None = None,
    *,
    typed: dict[str, list[Any]] | None = None,
    relations: list[str] | None = None,
    moments: list[str] | None = None,
) -> Parent:
    """What ingest left behind, as far as evaluation reads it. `typed`: ids of each type, in place of `ids`.

    `moments`: nodes are entities, called by `ids`, at these.
    """
    folder.mkdir(parents=True)
    with DatasetWriter(folder) as writer:
        for kind, own in (typed or ({} if ids is None else {"node": ids})).items():
            names: dict[str, Any] = {"original_id": pa.array(own)}
            if moments is not None:
                whole = [f"{one}@{moment}" for one, moment in zip(own, moments, strict=True)]
                names = {"original_id": pa.array(whole), "entity": pa.array(own), "moment": pa.array(moments)}
            writer.write(f"ids/{kind}", {"node_id": np.arange(len(own)), **names})
        if relations is not None:
            write_relations(writer, pa.array(relations))
        if graphs is not None:
            writer.write("ids/graphs", {"graph_id": np.arange(len(graphs)), "original_id": pa.array(graphs)})
        if classes is not None:
            writer.write("classes", {"label": np.arange(len(classes)), "name": pa.array(classes)})
        tables = writer.tables
    m = graph.manifest
    manifest = DatasetManifest(
        **COMMON,
        stage="ingest",
        files=describe_files(folder),
        dataset="test",
        task=m.task,
        task_type=m.task_type,
        num_classes=m.num_classes,
        metric=m.metric,
        directed=False,
        node_types=tuple(NodeType(name=kind, num_nodes=len(own)) for kind, own in typed.items())
        if typed
        else (NodeType(name="node", num_nodes=m.num_nodes),),
        edge_types=(),
        target_type=next(iter(typed or {"node": ()})),
        splits=m.splits,
        tables=tables,
    )
    (folder / "manifest.json").write_text(manifest.model_dump_json())
    return Parent(manifest, folder)


def trained(folder: Path, graph: Parent, name: str) -> Parent:
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    config = MODELS.config({"name": name, "hidden_dim": 16, "num_layers": 2})
    model: GraphModel = MODELS.create(config, graph_facts(graph.manifest))
    save_atomic(best_state(model, "digest", 3, 0.5), folder / "best.pt")
    manifest = RunResult(
        **COMMON,
        stage="train",
        files=describe_files(folder),
        model=config.model_dump(mode="json"),
        seed=0,
        world_size=1,
        strategy="data_parallel",
        best_epoch=3,
        best_metric=0.5,
        epochs_run=4,
        num_parameters=1,
        seeds_per_second=1.0,
        edges_per_second=1.0,
        best_checkpoint="best.pt",
        last_checkpoint="best.pt",
        metrics_file="metrics.jsonl",
    )
    return Parent(manifest, folder)
