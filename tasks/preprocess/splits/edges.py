"""Splits of edges that have labels, and which edges carry no messages because they are scored."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from configs.errors import RecipeError
from configs.schema import SnapshotConfig
from tasks.arrays import Array
from tasks.preprocess.edges.edge_kernels import Runs
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.splits.by_time import WrittenSplits
from tasks.preprocess.splits.rows import write_own
from tasks.preprocess.splits.snapshot import Snapshot
from tasks.stage import StageContext
from tasks.storage.dataset_store import DatasetStore, ShardRef
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import SPLITS, DatasetManifest


def write(
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
