"""Induced subgraphs: the edges between some of the nodes, found in one pass over their in-edges.

Whether a source is a member is read from a bitmap, which stays in the second-level cache where a 4-byte table would
not (1.2 M nodes: 150 KB). Without a branch, as membership is hard to predict; only the edges that stay are then
renumbered. 2 to 4 ns an edge that is looked at, a third of one table's time (Zen 4, November 2026).
"""

from __future__ import annotations

import threading

import numpy as np
import torch
from numba import njit

from models.block import Batch, Block
from models.kernels.memory import recycled
from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.sampling.neighborhoods.lookup import frozen
from tasks.sampling.rows.features import FeatureSource
from tasks.sampling.rows.labels import hide_labels, targets
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.base import Array, Loader

_ROWS_AHEAD = 8  # nodes whose first edges are asked for; most have few cache lines of them
_LINE = 16  # int32 ids in a cache line


@njit(cache=True, nogil=True)
def select_edges(indptr, indices, nodes, bits, counts, sources, positions):  # type: ignore[no-untyped-def]
    """Collect the in-edges of `nodes` whose sources are among them; return how many there are.

    Args:
        indptr, indices: the graph's CSC.
        nodes: int64 (n,), distinct.
        bits: uint64 (N // 64 + 1,) of zeros; zeros again afterwards.
        counts: int64 (n + 1,): running number of edges found.
        sources: like `indices` (in-degrees' sum,): their sources, ids in the graph.
        positions: int64, as long: their CSC positions; or None.
    """
    for i in range(len(nodes)):
        v = nodes[i]
        bits[v >> 6] |= np.uint64(1) << np.uint64(v & 63)
    found = np.int64(0)
    counts[0] = 0
    for i in range(len(nodes)):
        if i + AHEAD < len(nodes):
            prefetch_item(indptr, nodes[i + AHEAD])
        if i + _ROWS_AHEAD < len(nodes):
            start = indptr[nodes[i + _ROWS_AHEAD]]
            prefetch_item(indices, start)
            prefetch_item(indices, start + _LINE)
        v = nodes[i]
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            sources[found] = u  # the next edge overwrites it unless the count moves on
            if positions is not None:
                positions[found] = e
            found += np.int64((bits[u >> 6] >> np.uint64(u & 63)) & np.uint64(1))
        counts[i + 1] = found
    for i in range(len(nodes)):
        bits[nodes[i] >> 6] = 0
    return found


@njit(cache=True, nogil=True)
def renumber(ids, place, first, out):  # type: ignore[no-untyped-def]
    """Fill out int32 (m,) with place[ids] - first."""
    for e in range(len(ids)):
        if e + AHEAD < len(ids):
            prefetch_item(place, np.int64(ids[e + AHEAD]))
        out[e] = place[ids[e]] - first


class _Bits(threading.local):
    """A bitmap over all nodes for each thread."""

    def __init__(self, num_nodes: int) -> None:
        self.zeros = np.zeros(num_nodes // 64 + 1, np.uint64)


class SubgraphLoader(Loader):
    """Base of loaders whose batches are induced subgraphs; the loss is taken on the training nodes in them.

    A batch is one square block that all layers share.
    """

    num_batches: int

    def __init__(self, store: GraphStore, features: FeatureSource) -> None:
        self.manifest = store.manifest
        self.features = features
        self.indptr, self.indices = frozen(store["csc_indptr"]), frozen(store["csc_indices"])
        self.labels = store["label"]
        self.is_train = np.zeros(self.manifest.num_nodes, np.bool_)
        self.is_train[store["train_idx"]] = True
        self.num_seeds = len(store["train_idx"])
        self._bits = _Bits(self.manifest.num_nodes)

    def subgraph(self, nodes: Array, place: Array, first: int, *, positions: bool) -> tuple[Block, Array | None]:
        """Return the block of the edges between nodes, int64 (n,) distinct, and their CSC positions, int64 (E,).

        `place` is (N,), with place[nodes[i]] = first + i; other entries are not read. Without `positions` these are
        None.
        """
        room = int((self.indptr[nodes + 1] - self.indptr[nodes]).sum())
        indptr = recycled(len(nodes) + 1, np.int64)
        sources = recycled(room, self.indices.dtype)
        edges = recycled(room, np.int64) if positions else None
        count = select_edges(self.indptr, self.indices, nodes, self._bits.zeros, indptr, sources, edges)
        indices = recycled(count, np.int32)
        renumber(sources[:count], place, first, indices)
        csc = torch.from_numpy(indptr), torch.from_numpy(indices)
        block = Block(*csc, len(nodes), symmetric=self.manifest.symmetric)
        return block, None if edges is None else edges[:count]

    def make_batch(self, nodes: Array, block: Block, positions: Array | None, key: int) -> Batch:
        """Return the batch of a block whose nodes are `nodes`, int64 (n,).

        `positions` are its edges', where these carry features; from `key` is drawn whose labels a model may read.
        """
        rows, inputs = hide_labels(self.features.inputs(nodes), np.flatnonzero(self.is_train[nodes]), key)
        return Batch(
            blocks=[self.features.attach(block, positions)],
            inputs=inputs,
            target=targets(self.manifest, self.labels[nodes[rows]]),
            num_seeds=len(rows),
            rows=torch.from_numpy(rows),
            num_edges=block.num_edges,
        )
