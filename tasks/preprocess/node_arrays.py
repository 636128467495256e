"""Ids, types, times and labels of nodes, graphs and edges: small tables that become arrays of the graph."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array, blocks, offsets
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.splits.snapshot import Snapshot
from tasks.storage.dataset_store import DatasetStore, to_numpy
from tasks.storage.graph_store import ALWAYS, ArrayWriter
from tasks.storage.manifests import EDGE_LABELS

_CHUNK_ROWS = 1 << 20


def write_nodes(store: DatasetStore, ids: IdSpace, writer: ArrayWriter, snapshot: Snapshot | None = None) -> None:
    """Write `node_ids`, `node_type`, `node_time` and (node tasks, layouts) `label`; row group by row group.

    Of a snapshot, the rows that exist.
    """
    manifest, num_nodes, names = store.manifest, ids.num_nodes, ids.node_types
    node_ids = writer.create("node_ids", (num_nodes,), np.int64)
    for rows in blocks(num_nodes, _CHUNK_ROWS):
        node_ids[rows] = np.arange(rows.start, rows.stop) if snapshot is None else snapshot.kept[rows]
    if len(names) > 1:
        node_type = writer.create("node_type", (num_nodes,), np.int16)
        for t, (first, last) in enumerate(zip(ids.type_offsets, ids.type_offsets[1:], strict=False)):
            node_type[first:last] = t

    def fill(name: str, column: str, out: Array) -> None:
        """Write a column of a type's nodes to their places."""
        choose = None if snapshot is None else functools.partial(snapshot.kept_rows, ids.type_index(name))
        _fill(store, f"nodes/{name}", column, out[ids.offset(name) :], choose)

    columns = {name: manifest.tables[f"nodes/{name}"].columns for name in names}
    timed = [name for name in names if "time" in columns[name]]
    if timed:
        time = writer.create("node_time", (num_nodes,), np.int64)
        if len(timed) < len(names):
            time[:] = -1 if manifest.fit_before is None else ALWAYS  # types without a time
        for name in timed:
            fill(name, "time", time)
    of_splits = manifest.split_rows
    others = of_splits.are_pairs or of_splits.are_graphs or of_splits.are_edges
    if not others and "label" in columns[manifest.target_type]:
        label = _create_label(store, writer, "label", num_nodes)
        if len(names) > 1:
            label[:] = -1 if label.ndim == 1 else np.nan
        fill(manifest.target_type, "label", label)


def write_graphs(store: DatasetStore, ids: IdSpace, writer: ArrayWriter) -> None:
    """Write `graph_offsets` and `graph_label` of a graph task. Raises DataError where the sizes do not add up."""
    sizes = store.column("graphs", "num_nodes")
    graph_offsets = offsets(sizes)
    if graph_offsets[-1] != ids.num_nodes:
        raise DataError(
            f"graphs have {int(graph_offsets[-1]):,} nodes by their num_nodes, but there are {ids.num_nodes:,} "
            "nodes; mend num_nodes",
            path="graphs",
        )
    writer.write("graph_offsets", graph_offsets)
    _fill(store, "graphs", "label", _create_label(store, writer, "graph_label", len(sizes)))


def write_edge_labels(store: DatasetStore, writer: ArrayWriter) -> None:
    """Write `edge_label` of an edge task."""
    kind = store.manifest.labelled_edges
    label = _create_label(store, writer, "edge_label", kind.num_edges)
    _fill(store, f"{EDGE_LABELS}/{kind.name}", "label", label)


def _create_label(store: DatasetStore, writer: ArrayWriter, name: str, rows: int) -> Array:
    """Classes are int64 (rows,); everything else float32 (rows, T), NaN where there is none."""
    if store.manifest.label_type.one_of_many and store.manifest.num_tasks == 1:
        return writer.create(name, (rows,), np.int64)
    return writer.create(name, (rows, store.manifest.num_tasks), np.float32)


def _fill(
    store: DatasetStore, table: str, column: str, out: Array, choose: Callable[[int, int], Array] | None = None
) -> None:
    """Write a column's values one after the other; `choose(first row, count)` picks some, counted from the first."""
    place = 0
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
