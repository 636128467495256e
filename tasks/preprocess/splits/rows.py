"""Splits of rows: nodes with labels, edges with labels, and graphs.

Of a snapshot nodes are split by time, or as the data set does as far as they exist. Edges that are scored carry no
messages.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import njit

from configs.errors import DataError, RecipeError
from configs.schema import SnapshotConfig
from tasks.arrays import Array, blocks, offsets
from tasks.counter_random import bits
from tasks.ingest.labels import has_label
from tasks.preprocess.edges.edge_kernels import Runs
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.splits.by_time import WrittenSplits, cut_ranks, span
from tasks.preprocess.splits.snapshot import Snapshot
from tasks.preprocess.transforms.base import GraphView
from tasks.stage import StageContext
from tasks.storage.dataset_store import DatasetStore, ShardRef
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


def write_edges(
    store: DatasetStore, ids: IdSpace, writer: ArrayWriter, snapshot: Snapshot | None, options: SnapshotConfig
) -> WrittenSplits:
    """Write `edge_ends`, and `train_idx`, ... of edges. Raises RecipeError: a snapshot is asked for."""
    if snapshot is not None:
        raise RecipeError(
            "snapshot.as_of: edge tasks have no snapshots; split by time instead (dataset.split.by: time)"
        )
    kind = store.manifest.labelled_edges
    ends = writer.create("edge_ends", (kind.num_edges, 2), ids.id_type)
    for first, group in store.row_groups(f"edges/{kind.name}", ["src", "dst"]):
        rows = slice(first, first + group.num_rows)
        ends[rows, 0] = group["src"].to_numpy() + ids.offset(kind.source)
        ends[rows, 1] = group["dst"].to_numpy() + ids.offset(kind.target)
    return write_own(store, ids, writer, "edge_id", 0, kind.num_edges)


def left_out(
    store: DatasetStore, ids: IdSpace, writer: ArrayWriter, context: StageContext
) -> Callable[[Runs, ShardRef], Runs] | None:
    """Return what takes the edges of validation and test out of sorted shards; None for other tasks, and if they stay.

    Memory: a byte for each edge of the labelled table. `writer` has written the splits.
    """
    manifest = store.manifest
    if not manifest.split_rows.are_edges or manifest.keep_known_pairs:
        return None
    kind = manifest.labelled_edges
    stays = np.ones(kind.num_edges, np.bool_)
    for split in SPLITS[1:]:
        stays[writer.read(f"{split}_idx")] = False
    context.message(
        f"{int(np.count_nonzero(~stays)):,} of {len(stays):,} edges carry no messages: they are validated or tested "
        "(dataset.scored_edges=keep leaves them in)"
    )
    labelled = {shard.path for shard in store.shards(f"edges/{kind.name}")}

    def without(runs: Runs, shard: ShardRef) -> Runs:
        if shard.path in labelled:
            runs = runs.only(stays[shard.first_row + runs.table_rows.astype(np.int64)])
        return runs if ids.carries_data else runs._replace(table_rows=runs.table_rows[:0])

    return without


def scored_rows(manifest: DatasetManifest, ids: IdSpace) -> Array | None:
    """Return the scored edges' numbers over all edge tables, int64 (M,); None for other tasks."""
    if not manifest.split_rows.are_edges:
        return None
    table = manifest.edge_types.index(manifest.labelled_edges)
    return np.arange(ids.table_starts[table], ids.table_starts[table + 1])
