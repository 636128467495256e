"""The fields of a data set's manifest, from the tables that were written."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from configs.errors import DataError
from tasks.ingest.labels import usual_metric
from tasks.storage.manifests import SPLITS, EdgeType, FeatureColumn, NodeType, TaskType

if TYPE_CHECKING:
    from tasks.ingest.edges import EdgeCheck
    from tasks.ingest.writer import DatasetWriter


def dataset_fields(
    writer: DatasetWriter,
    dataset: str,
    task_type: TaskType,
    *,
    node_types: Iterable[NodeType] = (),
    edge_types: Iterable[EdgeType] = (),
    checks: Collection[EdgeCheck] | None = None,
    metric: str | None = None,
    **others: Any,
) -> dict[str, Any]:
    """Return the fields of `DatasetManifest`; what is not given follows from the tables of `writer`, all closed.

    Args:
        writer: wrote `nodes/...`, `edges/...`, `split/...` and, of many graphs, `graphs`.
        dataset: name, for people.
        task_type: kind of label; a link, triple or layout task is called so, all others are node or graph tasks.
        node_types: none: `node`, whose numeric feature is `feat` where its table has that column.
        edge_types: none: `to`, from `node` to `node`.
        checks: what was counted of the edges; None: nothing was.
        metric: None: the one that such labels are usually judged by.
        others: any other field, in the place of what follows from the tables.
    """
    tables = writer.tables
    nodes = tuple(node_types)
    if not nodes:
        schema = _written(writer, dataset, "nodes/node")
        feature = FeatureColumn(column="feat", kind="numeric", dim=_width(schema, "feat"))
        features = (feature,) if "feat" in schema.names else ()
        nodes = (NodeType(name="node", num_nodes=tables["nodes/node"].num_rows, features=features),)
    edges = tuple(edge_types)
    if not edges:
        _written(writer, dataset, "edges/node__to__node")
        edges = (
            EdgeType(source="node", relation="to", target="node", num_edges=tables["edges/node__to__node"].num_rows),
        )
    target = others.get("target_type", nodes[0].name)
    of_graphs = "graphs" in tables
    task = task_type if task_type in ("link", "triple", "layout") else "graph" if of_graphs else "node"
    fields: dict[str, Any] = {
        "dataset": dataset,
        "task": task,
        "task_type": task_type,
        "num_classes": 2 if task_type in ("binary", "multilabel") else 0,
        "num_tasks": _width(_written(writer, dataset, "graphs" if of_graphs else f"nodes/{target}"), "label"),
        "metric": metric or usual_metric(task_type),
        "directed": False,
        "node_types": nodes,
        "edge_types": edges,
        "target_type": target,
        "num_graphs": tables["graphs"].num_rows if of_graphs else 1,
        "splits": {split: tables[f"split/{split}"].num_rows for split in SPLITS if f"split/{split}" in tables},
        "tables": tables,
    }
    if checks is not None:
        duplicates = [check.num_duplicates for check in checks]
        fields["num_self_loops"] = sum(check.num_self_loops for check in checks)
        fields["num_duplicate_edges"] = -1 if -1 in duplicates else sum(duplicates)
    return fields | others


def _written(writer: DatasetWriter, dataset: str, table: str) -> pa.Schema:
    if table not in writer.schemas:
        raise DataError("was not written", path=f"data set {dataset}, table {table}")
    return writer.schemas[table]


def _width(schema: pa.Schema, column: str) -> int:
    """Return how many numbers a column has in a row; 1 where there is no such column."""
    kind = schema.field(column).type if column in schema.names else None
    return int(kind.list_size) if kind is not None and pa.types.is_fixed_size_list(kind) else 1
