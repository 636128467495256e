"""Labels, times, splits, held-out edges and graphs: small tables that become arrays of the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from configs.errors import DataError
from configs.layout_options import LAYOUT
from tasks.arrays import Array, blocks, offsets
from tasks.preprocess.layout import Layout
from tasks.preprocess.splits.snapshot import Snapshot
from tasks.preprocess.transforms.graph_view import GraphView
from tasks.storage.dataset_store import DatasetStore, to_numpy
from tasks.storage.graph_store import ALWAYS, ArrayWriter
from tasks.storage.manifests import SPLITS, DatasetManifest

_CHUNK_ROWS = 1 << 20
Choose = Callable[[int, int], Array]
"""(first row, number of rows) -> which of them, counted from the first."""


def write_relations(store: DatasetStore, writer: ArrayWriter) -> None:
    """Write `relation_feat`, where relations have features."""
    if store.manifest.relation_feature_dim:
        writer.write("relation_feat", store.column("relations", "feat").astype(np.float32))


def write_nodes(store: DatasetStore, layout: Layout, writer: ArrayWriter, snapshot: Snapshot | None = None) -> None:
    """Write `node_ids`, `node_type`, `node_time` and (node tasks, layouts) `label`; row group by row group.

    Of a snapshot, the rows that exist.
    """
    manifest, num_nodes = store.manifest, layout.num_nodes
    ids = writer.create("node_ids", (num_nodes,), np.int64)
    for rows in blocks(num_nodes, _CHUNK_ROWS):
        ids[rows] = np.arange(rows.start, rows.stop) if snapshot is None else snapshot.kept[rows]
    if len(layout.node_types) > 1:
        node_type = writer.create("node_type", (num_nodes,), np.int16)
        for t, (first, last) in enumerate(zip(layout.type_offsets, layout.type_offsets[1:], strict=False)):
            node_type[first:last] = t
    columns = {name: manifest.tables[f"nodes/{name}"].columns for name in layout.node_types}
    timed = [name for name in layout.node_types if "time" in columns[name]]
    if timed:
        time = writer.create("node_time", (num_nodes,), np.int64)
        if len(timed) < len(layout.node_types):
            time[:] = -1 if manifest.fit_before is None else ALWAYS  # types without a time
        for name in timed:
            _fill(store, f"nodes/{name}", "time", time, layout.offset(name), _choose(snapshot, layout, name))
    if manifest.task in ("node", LAYOUT) and "label" in columns[manifest.target_type]:
        label = _create_label(store, writer, "label", num_nodes)
        if len(layout.node_types) > 1:
            label[:] = -1 if label.ndim == 1 else np.nan
        target = manifest.target_type
        _fill(store, f"nodes/{target}", "label", label, layout.offset(target), _choose(snapshot, layout, target))


def _choose(snapshot: Snapshot | None, layout: Layout, name: str) -> Choose | None:
    """Return the function that picks the rows of a type's table that are in the graph; None: all."""
    return None if snapshot is None else functools.partial(snapshot.kept_rows, layout.type_index(name))


def _create_label(store: DatasetStore, writer: ArrayWriter, name: str, rows: int) -> Array:
    """Classes are int64 (rows,); everything else float32 (rows, T), NaN where there is none."""
    if store.manifest.task_type == "multiclass" and store.manifest.num_tasks == 1:
        return writer.create(name, (rows,), np.int64)
    return writer.create(name, (rows, store.manifest.num_tasks), np.float32)


def _fill(store: DatasetStore, table: str, column: str, out: Array, place: int, choose: Choose | None = None) -> None:
    for row, group in store.row_groups(table, [column]):
        values = to_numpy(group.column(column))
        if choose is not None:
            values = values[choose(row, len(values))]
        values = values.reshape(len(values), *out.shape[1:])
        # No label is -1 among classes, NaN in columns of numbers.
        if out.ndim == 1 and np.issubdtype(values.dtype, np.floating):
            values = np.where(np.isnan(values), -1, values)
        elif out.ndim == 2 and np.issubdtype(values.dtype, np.integer):
            values = np.where(values < 0, np.nan, values)
        out[place : place + len(values)] = values
        place += len(values)


def write_graphs(store: DatasetStore, layout: Layout, writer: ArrayWriter) -> None:
    """Write `graph_offsets` and `graph_label` of a graph task. Raises DataError where the sizes do not add up."""
    if store.manifest.task != "graph":
        return
    sizes = store.column("graphs", "num_nodes")
    graph_offsets = offsets(sizes)
    if graph_offsets[-1] != layout.num_nodes:
        raise DataError(
            f"graphs have {int(graph_offsets[-1]):,} nodes by their num_nodes, but there are {layout.num_nodes:,} "
            "nodes; mend num_nodes",
            path="graphs",
        )
    writer.write("graph_offsets", graph_offsets)
    label = _create_label(store, writer, "graph_label", len(sizes))
    _fill(store, "graphs", "label", label, 0)


def write_splits(store: DatasetStore, layout: Layout, writer: ArrayWriter) -> dict[str, int]:
    """Write `train_idx`, ... or `train_edges`, ... and negatives; returns the sizes. A layout's are empty.

    Raises:
        DataError: an id is out of range or repeated.
    """
    manifest = store.manifest
    if manifest.task == LAYOUT:
        return write_no_splits(layout, writer)
    if manifest.task == "link":
        return _write_link_splits(store, layout, writer)
    if manifest.task == "triple":
        return _write_triple_splits(store, layout, writer)
    column, offset, limit = "graph_id", 0, manifest.num_graphs
    if manifest.task == "node":
        column, offset = "node_id", layout.offset(manifest.target_type)
        limit = manifest.node_types[layout.type_index(manifest.target_type)].num_nodes
    sizes = {}
    seen = np.zeros(limit, np.int8)
    for number, split in enumerate(SPLITS, start=1):
        ids = store.column(f"split/{split}", column).astype(np.int64)
        _check_range(ids, limit, f"split/{split}", column)
        _check_overlap(ids, seen, number, split)
        writer.write(f"{split}_idx", (np.sort(ids) + offset).astype(layout.id_type))
        sizes[split] = len(ids)
    return sizes


def write_no_splits(layout: Layout, writer: ArrayWriter) -> dict[str, int]:
    """Write splits without a row; returns their sizes."""
    for split in SPLITS:
        writer.write(f"{split}_idx", np.empty(0, layout.id_type))
    return dict.fromkeys(SPLITS, 0)


def _check_range(ids: Array, limit: int, table: str, column: str) -> None:
    wrong = np.argwhere((ids < 0) | (ids >= limit))
    if len(wrong):
        row = int(wrong[0][0])
        value = int(ids[tuple(wrong[0])])
        raise DataError(f"id {value} is not in 0..{limit - 1}; mend or drop it", path=table, row=row, column=column)


def _check_overlap(ids: Array, seen: Array, number: int, split: str) -> None:
    """`seen` holds the number of the split that an id is in."""
    taken = np.flatnonzero(seen[ids])
    if len(taken):
        row = int(taken[0])
        other = SPLITS[int(seen[ids[row]]) - 1]
        raise DataError(f"{int(ids[row])} is in the {other} split too", path=f"split/{split}", row=row)
    seen[ids] = number
    if np.count_nonzero(seen == number) != len(ids):
        values, counts = np.unique(ids, return_counts=True)
        raise DataError(f"{int(values[counts > 1][0])} is in the split twice", path=f"split/{split}")


def _write_link_splits(store: DatasetStore, layout: Layout, writer: ArrayWriter) -> dict[str, int]:
    manifest, kinds = store.manifest, _link_ends(store, layout)
    sizes = {}
    for split in SPLITS:
        pairs = read_pairs(store, layout, f"split/{split}", kinds)
        writer.write(f"{split}_edges", pairs)
        sizes[split] = len(pairs)
        table = f"split/{split}_negative"
        if split != "train" and table in store:
            negatives = read_pairs(store, layout, table, kinds)
            if negatives.ndim == 3 and len(negatives) != len(pairs):
                raise DataError(
                    f"there are candidates for {len(negatives):,} edges, but {split} has {len(pairs):,}; give a row "
                    "of candidates for each edge",
                    path=table,
                )
            writer.write(f"{split}_negative", negatives)
        for name in (split, f"{split}_negative") if manifest.num_relations else ():
            if f"split/{name}" in store:
                relation = store.column(f"split/{name}", "relation").astype(np.int32)
                _check_range(relation, manifest.num_relations, f"split/{name}", "relation")
                writer.write(f"{name}_relation", relation)
    if "weight" in store.table("split/train").columns:
        writer.write("train_edge_weight", store.column("split/train", "weight").astype(np.float32))
    return sizes


def _write_triple_splits(store: DatasetStore, layout: Layout, writer: ArrayWriter) -> dict[str, int]:
    """Heads and tails as edges, their relations beside them; ids are those of all types end to end."""
    sizes = {}
    for split in SPLITS:
        table = f"split/{split}"
        writer.write(f"{split}_edges", _read_ends(store, layout, table))
        relation = store.column(table, "relation").astype(np.int32)
        _check_range(relation, store.manifest.num_relations, table, "relation")
        writer.write(f"{split}_relation", relation)
        sizes[split] = len(relation)
        negative = f"{table}_negative"
        if split != "train" and negative in store:
            candidates = _read_ends(store, layout, negative)
            if len(candidates) != sizes[split]:
                raise DataError(
                    f"there are candidates for {len(candidates):,} triples, but {split} has {sizes[split]:,}; give a "
                    "row of candidates for each triple",
                    path=negative,
                )
            writer.write(f"{split}_negative", candidates)
    if "weight" in store.table("split/train").columns:
        writer.write("train_edge_weight", store.column("split/train", "weight").astype(np.float32))
    return sizes


def _read_ends(store: DatasetStore, layout: Layout, table: str) -> Array:
    """Return ids (n, 2), or (n, K, 2) of lists. Raises DataError for an id that no node has."""
    ends = [store.column(table, column).astype(np.int64) for column in ("src", "dst")]
    for ids, column in zip(ends, ("src", "dst"), strict=True):
        _check_range(ids, layout.num_nodes, table, column)
    return np.stack(ends, -1).astype(layout.id_type)


def _link_ends(store: DatasetStore, layout: Layout) -> tuple[str, str]:
    """Node types of a held-out edge's ends. Raises DataError where that is ambiguous."""
    if len(layout.node_types) == 1:
        return layout.node_types[0], layout.node_types[0]
    if len(store.manifest.edge_types) == 1:
        return store.manifest.edge_types[0].source, store.manifest.edge_types[0].target
    raise DataError(
        "held-out edges name nodes within a type, and this data set has several node types and relations "
        f"({', '.join(t.name for t in store.manifest.edge_types)}); keep one relation, or use one node type"
    )


def read_pairs(store: DatasetStore, layout: Layout, table: str, kinds: tuple[str, str]) -> Array:
    """Return ids (n, 2) of the layout, or (n, K, 2) where `dst` (or `src`) is a list of K candidates.

    `kinds` are the node types of the ends. Raises DataError for an id that its type has not.
    """
    ends: list[Array] = []
    for column, name in zip(("src", "dst"), kinds, strict=True):
        index = layout.type_index(name)
        ids = store.column(table, column).astype(np.int64)
        _check_range(ids, layout.manifest.node_types[index].num_nodes, table, column)
        ends.append(ids + layout.type_offsets[index])
    if ends[0].ndim != ends[1].ndim:
        ends = [end[:, None] if end.ndim == 1 else end for end in ends]
    return np.stack(np.broadcast_arrays(*ends), -1).astype(layout.id_type)


def training_rows(manifest: DatasetManifest, graph: GraphView) -> Array | None:
    """Return the nodes of the graph that transforms may learn from, ascending.

    None: all, as link and triple tasks hide edges only, and layouts nothing.

    Node tasks: the training nodes; where nodes are predicted at moments, those of all types that are older than the
    first moment that validates. Graph tasks: the nodes of the training graphs.
    """
    task = manifest.task
    if manifest.fit_before is not None:
        times = graph["node_time"]
        older = [
            some.start + np.flatnonzero(times[some] < manifest.fit_before) for some in blocks(len(times), _CHUNK_ROWS)
        ]
        return np.concatenate(older)
    if task in ("link", "triple", LAYOUT):
        return None
    train = graph["train_idx"].astype(np.int64)
    if task == "node":
        return train
    graph_offsets = graph["graph_offsets"]
    sizes = graph_offsets[train + 1] - graph_offsets[train]
    starts = np.repeat(graph_offsets[train] - offsets(sizes)[:-1], sizes)
    return starts + np.arange(len(starts))
