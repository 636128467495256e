"""Users' tables to ours: nodes, then edges, then splits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from configs.errors import DataError, RecipeError
from configs.matching import did_you_mean
from tasks.ingest.edges import total_duplicates
from tasks.ingest.table_edges import EdgeReader, Triplet, discover_nodes
from tasks.ingest.table_nodes import LabelStore, NodeSet, SplitColumn, scan_nodes, table_files, write_nodes
from tasks.ingest.table_splits import LinkSplitter, node_splits
from tasks.ingest.tables import Tables
from tasks.ingest.writer import DatasetWriter
from tasks.manifests import NodeType
from tasks.stage import StageContext

Array = NDArray[Any]

_METRICS = {"multiclass": "accuracy", "regression": "rmse", "link": "hits@50"}


def ingest_tables(config: Tables.Config, context: StageContext) -> dict[str, Any]:
    """Write all tables; return the fields of DatasetManifest. Raises DataError and RecipeError."""
    nodes = _node_sets(config)
    target = _target_type(config, nodes)
    labels = LabelStore(config) if config.task == "node" else None
    owner = _scan(config, nodes, target, labels)
    with DatasetWriter(context.work) as writer:
        column, names = None, None
        if labels is not None:
            if config.labels is not None:
                _read_labels(config, nodes[target], labels)
            column, names = labels.finish(nodes[target].num_nodes)
        node_types = []
        for kind, node_set in nodes.items():
            features = write_nodes(node_set, writer, column if kind == target else None)
            node_types.append(NodeType(name=kind, num_nodes=node_set.num_nodes, features=features))
            node_set.write_ids(writer)
        readers, sizes = _write_edges(config, nodes, writer, context)
        if column is not None:
            found = node_splits(config, nodes[target], column, owner)
            for split, ids in found.items():
                writer.write(f"split/{split}", {"node_id": ids})
            sizes = {split: len(ids) for split, ids in found.items()}
        if names is not None:
            writer.write("classes", {"label": np.arange(len(names), dtype=np.int64), "name": names})
    task_type = config.task_type if config.task == "node" else "link"
    return {
        "dataset": config.title,
        "task": config.task,
        "task_type": task_type,
        "num_classes": _num_classes(config, names),
        "num_tasks": column.shape[1] if column is not None and column.ndim == 2 else 1,
        "metric": config.metric or _METRICS.get(task_type, "rocauc"),
        "directed": config.directed,
        "node_types": tuple(node_types),
        "edge_types": tuple(edge_type for reader in readers for edge_type in reader.describe()),
        "target_type": target,
        "splits": sizes,
        "num_self_loops": sum(s.check.num_self_loops for reader in readers for s in reader.sinks.values()),
        "num_duplicate_edges": total_duplicates([s.check for reader in readers for s in reader.sinks.values()]),
        "tables": writer.tables,
    }


def _num_classes(config: Tables.Config, names: pa.Array | None) -> int:
    if config.task == "link" or config.task_type == "regression":
        return 0
    if config.task_type != "multiclass":
        return 2
    return config.num_classes or (0 if names is None else len(names))


def _node_sets(config: Tables.Config) -> dict[str, NodeSet]:
    """All node types: those with a table first, then those that only edges name."""
    nodes = {table.type: NodeSet(table.type, table) for table in config.nodes}
    used = {kind for edges in config.edges for kind in (edges.source_type, edges.target_type)}
    if config.nodes:
        for kind in sorted(used - set(nodes)):
            hint = did_you_mean(kind, nodes)
            if hint:
                raise RecipeError(f"dataset.edges: unknown node type {kind!r}{hint}")
    return nodes | {kind: NodeSet(kind, None) for kind in sorted(used - set(nodes))}


def _target_type(config: Tables.Config, nodes: dict[str, NodeSet]) -> str:
    labelled = [table.type for table in config.nodes if table.label]
    target = config.target_type or (labelled[0] if labelled else None)
    if config.task == "link":
        target = config.edges[0].source_type
    if target is None and len(nodes) == 1:
        target = next(iter(nodes))
    if target not in nodes:
        known = ", ".join(nodes)
        raise RecipeError(f"dataset.target_type: which nodes carry the labels? One of {known}, not {target}")
    return target


def _scan(config: Tables.Config, nodes: dict[str, NodeSet], target: str, labels: LabelStore | None) -> Array | None:
    """First pass: get to know all ids; return the split column's codes of the target nodes, where there is one."""
    owner = None
    split = SplitColumn(config.split.column) if config.split.column and config.task == "node" else None
    for kind, node_set in nodes.items():
        if node_set.config is not None:
            inside = labels if kind == target and node_set.config.label else None
            found = scan_nodes(node_set, config, inside, split if kind == target else None)
            owner = found if kind == target else owner
    if split is not None and owner is None:
        raise RecipeError(f"dataset.split.column: the {target} nodes have no table that could hold {split.column!r}")
    missing = {kind: found for kind, found in nodes.items() if not found.has_files and found.num_nodes == 0}
    if missing:
        for edges in config.edges:
            if {edges.source_type, edges.target_type} & set(missing):
                discover_nodes(edges, missing, config.text_ids)
        for kind, node_set in missing.items():
            assert node_set.index is not None
            if node_set.index.count == 0:
                raise DataError(f"there are no edges that could name {kind} nodes", path=config.edges[0].files[0])
            node_set.index.sort()
            node_set.settle()
    return owner


def _read_labels(config: Tables.Config, nodes: NodeSet, labels: LabelStore) -> None:
    """Read labels that stand in a table of their own."""
    table = config.labels
    assert table is not None
    kinds = {"texts": (), "numbers": ()} | labels.csv_kinds(table.label)
    texts = [*kinds["texts"], *nodes.texts(config.text_ids, table.id)]
    seen = np.zeros(nodes.num_nodes, np.bool_)
    rows = 0
    for batch in table_files(table).batches([table.id, *table.label], texts, kinds["numbers"]):
        codes = nodes.find(batch, table.id)
        nodes.check_range(batch, table.id, codes)
        order = np.argsort(codes, kind="stable")
        again = seen[codes]
        again[order[1:]] |= codes[order][1:] == codes[order][:-1]
        if again.any():
            row = int(np.flatnonzero(again)[0])
            raise batch.error(f"node {batch.column(table.id)[row].as_py()!r} has two labels", row, table.id)
        seen[codes] = True
        labels.put(batch, table.label, codes)
        rows += len(codes)
    if rows == 0:
        raise DataError("has no rows", path=", ".join(table.files))


def _write_edges(
    config: Tables.Config, nodes: dict[str, NodeSet], writer: DatasetWriter, context: StageContext
) -> tuple[list[EdgeReader], dict[str, int]]:
    taken: set[Triplet] = set()
    readers, sizes = [], {}
    for edges in config.edges:
        reader = EdgeReader(edges, config, nodes)
        splitter = None
        if config.task == "link":
            splitter = LinkSplitter(config, nodes[edges.source_type], edges, writer)
        reader.read(writer, context, taken, splitter)
        if splitter is not None:
            sizes = splitter.finish()
        readers.append(reader)
    return readers, sizes
