"""Splits of edges that have labels, and which edges carry no messages because they are scored."""

from __future__ import annotations

import numpy as np

from configs.errors import RecipeError
from configs.schema import SnapshotConfig
from tasks.arrays import Array
from tasks.preprocess.edges.edge_kernels import Runs
from tasks.preprocess.id_space import IdSpace
from tasks.preprocess.splits.by_time import WrittenSplits
from tasks.preprocess.splits.held_out import leave_pairs
from tasks.preprocess.splits.rows import write_own
from tasks.preprocess.splits.snapshot import Snapshot
from tasks.stage import StageContext
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import ArrayWriter
from tasks.storage.manifests import DatasetManifest


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


class LeftOutEdges:
    """Takes the edges of validation and test out of the graph, with all others that join the same two nodes.

    Memory: 16 bytes an edge of validation and test.
    """

    def __init__(self, writer: ArrayWriter, num_nodes: int) -> None:
        """`writer` has written the splits."""
        self.num_nodes = num_nodes
        held = [np.asarray(writer.read(f"{split}_idx"), np.int64) for split in ("valid", "test")]
        ends = np.asarray(writer.read("edge_ends"))[np.concatenate(held)].astype(np.int64)
        both = [ends[:, 1] * num_nodes + ends[:, 0], ends[:, 0] * num_nodes + ends[:, 1]]
        self._lookup = np.unique(np.concatenate(both))
        self._met = np.zeros(len(self._lookup), np.bool_)

    def __call__(self, runs: Runs, relation: int) -> Runs:
        """Return the runs of a shard without them."""
        return runs.only(leave_pairs(runs, self.num_nodes, self._lookup, self._met)) if len(self._lookup) else runs

    def say(self, context: StageContext) -> None:
        """Say how many pairs went."""
        low, high = np.divmod(self._lookup[self._met], self.num_nodes)
        pairs = len(np.unique(np.minimum(low, high) * self.num_nodes + np.maximum(low, high)))
        if pairs:
            context.message(
                f"edges between {pairs:,} pairs of nodes carry no messages: they are validated or tested "
                "(dataset.scored_edges=keep leaves them in)"
            )


def left_out(manifest: DatasetManifest, ids: IdSpace, writer: ArrayWriter) -> LeftOutEdges | None:
    """Return what takes scored edges out of the graph; None for other tasks, and where they stay."""
    if not manifest.split_rows.are_edges or manifest.keep_known_pairs:
        return None
    return LeftOutEdges(writer, ids.num_nodes)


def scored_rows(manifest: DatasetManifest, ids: IdSpace) -> Array | None:
    """Return the scored edges' numbers over all edge tables, int64 (M,); None for other tasks."""
    if not manifest.split_rows.are_edges:
        return None
    table = manifest.edge_types.index(manifest.labelled_edges)
    return np.arange(ids.table_starts[table], ids.table_starts[table + 1])
