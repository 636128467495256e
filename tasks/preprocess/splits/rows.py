"""Splits of rows: nodes with labels, and graphs. Of a snapshot by time, or the data set's own as far as it exists."""

from __future__ import annotations

import numpy as np
from numba import njit

from configs.errors import DataError
from configs.schema import SnapshotConfig
from tasks.arrays import Array, blocks, offsets
from tasks.counter_random import bits
from tasks.ingest.labels import has_label
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.splits.by_time import WrittenSplits, cut_ranks, span
from tasks.preprocess.splits.snapshot import Snapshot
from tasks.preprocess.transforms.base import GraphView
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import ArrayWriter, id_dtype
from tasks.storage.manifests import SPLITS, DatasetManifest

_CHUNK_ROWS = 1 << 20
_NODES = 0x5A11  # stream of the hash that orders nodes of one time


def write_nodes(
    store: DatasetStore, ids: IdSpace, writer: ArrayWriter, snapshot: Snapshot | None, options: SnapshotConfig
) -> WrittenSplits:
    """Write `train_idx`, ... of nodes, ascending; `label` is written before.

    Raises:
        DataError: an id is out of range or repeated.
    """
    target = store.manifest.target_type
    if snapshot is None:
        limit = store.manifest.node_types[ids.type_index(target)].num_nodes
        return write_own(store, ids, writer, "node_id", ids.offset(target), limit)
    births = snapshot.births[snapshot.kept]
    if options.split == "time":
        splits = _nodes_by_time(snapshot, writer, options)
    else:  # the data set's own, as far as they exist
        own_nodes = (store.column(f"split/{split}", "node_id").astype(np.int64) for split in SPLITS)
        splits = [snapshot.new_id[nodes + snapshot.source.offset(target)] for nodes in own_nodes]
        splits = [nodes[nodes >= 0].astype(np.int64) for nodes in splits]
    sizes, times = {}, {}
    for split, nodes in zip(SPLITS, splits, strict=True):
        writer.write(f"{split}_idx", np.sort(nodes).astype(ids.id_type))
        sizes[split], times[split] = len(nodes), span(births[nodes])
    return WrittenSplits(sizes, times)


def write_graphs(
    store: DatasetStore, ids: IdSpace, writer: ArrayWriter, snapshot: Snapshot | None, options: SnapshotConfig
) -> WrittenSplits:
    """Write `train_idx`, ... of graphs, which have no snapshots. Raises DataError as `write_nodes` does."""
    return write_own(store, ids, writer, "graph_id", 0, store.manifest.num_graphs)


def write_own(
    store: DatasetStore, ids: IdSpace, writer: ArrayWriter, column: str, offset: int, limit: int
) -> WrittenSplits:
    """Write the data set's own split of `limit` rows, whose numbers in the graph begin with `offset`."""
    kind = id_dtype(max(ids.num_nodes, limit))
    split_of = np.zeros(limit, np.int8)  # number of the split that each is in so far, 0: none
    sizes = {}
    for number, split in enumerate(SPLITS, start=1):
        rows = store.column(f"split/{split}", column).astype(np.int64)
        check_range(rows, limit, f"split/{split}", column)
        taken = np.flatnonzero(split_of[rows])
        if len(taken):
            row = int(taken[0])
            other = SPLITS[int(split_of[rows[row]]) - 1]
            raise DataError(f"{int(rows[row])} is in the {other} split too", path=f"split/{split}", row=row)
        split_of[rows] = number
        if np.count_nonzero(split_of == number) != len(rows):
            values, counts = np.unique(rows, return_counts=True)
            raise DataError(f"{int(values[counts > 1][0])} is in the split twice", path=f"split/{split}")
        writer.write(f"{split}_idx", (np.sort(rows) + offset).astype(kind))
        sizes[split] = len(rows)
    return WrittenSplits(sizes)


def check_range(ids: Array, limit: int, table: str, column: str) -> None:
    """Raise DataError for the first of some ids that is not in 0..limit - 1."""
    wrong = np.argwhere((ids < 0) | (ids >= limit))
    if len(wrong):
        row = int(wrong[0][0])
        value = int(ids[tuple(wrong[0])])
        raise DataError(f"id {value} is not in 0..{limit - 1}; mend or drop it", path=table, row=row, column=column)


def _nodes_by_time(snapshot: Snapshot, writer: ArrayWriter, options: SnapshotConfig) -> list[Array]:
    ids, target = snapshot.ids, snapshot.store.manifest.target_type
    first, last = ids.type_offsets[ids.type_index(target) :][:2]
    nodes = first + np.flatnonzero(has_label(writer.read("label")[first:last]))
    source_nodes = snapshot.kept[nodes]
    keys = node_keys(options.seed, source_nodes - snapshot.source.offset(target))
    nodes = nodes[np.lexsort((keys, snapshot.births[source_nodes]))]
    return np.split(nodes, cut_ranks(len(nodes), options))


@njit(cache=True, nogil=True)
def node_keys(seed: int, nodes: Array) -> Array:
    """Return a random uint64 for each node by its id within its type, which other types that grow do not move."""
    keys = np.empty(len(nodes), np.uint64)
    for i in range(len(nodes)):
        keys[i] = bits(seed, _NODES, nodes[i])
    return keys


def training_rows(manifest: DatasetManifest, graph: GraphView) -> Array | None:
    """Return the nodes of the graph that transforms may learn from, ascending.

    None: all, where pairs or edges are split, or nothing. Else the training nodes, or the nodes of the training graphs;
    where nodes are predicted at moments, those of all types that are older than the first moment that validates.
    """
    if manifest.fit_before is not None:
        times = graph["node_time"]
        older = [
            some.start + np.flatnonzero(times[some] < manifest.fit_before) for some in blocks(len(times), _CHUNK_ROWS)
        ]
        return np.concatenate(older)
    splits = [graph.get(f"{split}_idx") for split in SPLITS]
    if manifest.split_rows.are_edges or not any(rows is not None and len(rows) for rows in splits):
        return None
    train = graph["train_idx"].astype(np.int64)
    graph_offsets = graph.get("graph_offsets")
    if graph_offsets is None:
        return train
    sizes = graph_offsets[train + 1] - graph_offsets[train]
    starts = np.repeat(graph_offsets[train] - offsets(sizes)[:-1], sizes)
    return starts + np.arange(len(starts))
