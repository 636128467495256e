"""Batches that are induced subgraphs: parts of the partition, or clusters drawn at random."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import torch
from numba import njit

from configs.registry import LOADERS
from models.block import Batch, Block
from models.kernels.memory import recycled
from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array, blocks
from tasks.sampling.neighborhoods.in_edges import frozen
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.rows.labels import hide_labels, targets
from tasks.storage.graph_store import id_dtype
from tasks.storage.manifests import PartitionManifest
from tasks.train.loaders.base import Loader, TrainingData
from tasks.train.loaders.configs import ClusterLoaderConfig, RandomPartitionConfig

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
    kept = np.int64(0)
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
            sources[kept] = u  # the next edge overwrites it unless the count moves on
            if positions is not None:
                positions[kept] = e
            kept += np.int64((bits[u >> 6] >> np.uint64(u & 63)) & np.uint64(1))
        counts[i + 1] = kept
    for i in range(len(nodes)):
        bits[nodes[i] >> 6] = 0
    return kept


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


_KEPT_EPOCHS = 2  # batches made ahead reach into the next epoch


@dataclass(frozen=True)
class Layout:
    """Which nodes the batches of an epoch have."""

    nodes: Array
    """id (N,): all nodes, batch by batch, ascending within each."""
    place: Array
    """id (N,): where each node stands in `nodes`."""
    bounds: Array
    """int64 (num_batches + 1,): batch b has nodes[bounds[b]:bounds[b + 1]]."""


class SubgraphLoader(Loader):
    """Base of loaders whose batches are induced subgraphs; the loss is taken on the training nodes in them.

    Lays out every epoch by itself (8 bytes a node, for two epochs). A batch is one square block that all layers share.
    """

    num_batches: int

    def __init__(self, data: TrainingData) -> None:
        store = data.store
        self.manifest, self.features = store.manifest, data.features
        self.indptr, self.indices = frozen(store["csc_indptr"]), frozen(store["csc_indices"])
        self.labels = store["label"]
        self.is_train = np.zeros(self.manifest.num_nodes, np.bool_)
        self.is_train[store["train_idx"]] = True
        self.num_seeds = len(store["train_idx"])
        self.seed, self.rank = data.seed, data.rank
        self._bits = _Bits(self.manifest.num_nodes)
        self._layouts: dict[int, Layout] = {}
        self._lock = threading.Lock()

    def has_equal_batches(self) -> bool:
        """Batches have as many training nodes as it happens."""
        return False

    def lay_out(self, rng: np.random.Generator) -> Layout:
        """Return the layout of an epoch, drawn from `rng`."""
        raise AssertionError(f"{type(self).__name__} defines no lay_out")

    def epoch_batch(self, epoch: int, number: int, key: int) -> Batch:
        """Return the subgraph of batch `number`; from `key` is drawn only whose labels a model may read."""
        layout = self._layout(epoch)
        low, high = int(layout.bounds[number]), int(layout.bounds[number + 1])
        nodes = layout.nodes[low:high].astype(np.int64)
        room = int((self.indptr[nodes + 1] - self.indptr[nodes]).sum())
        indptr, sources = recycled(len(nodes) + 1, np.int64), recycled(room, self.indices.dtype)
        positions = recycled(room, np.int64) if self.features.reads_edges else None
        count = select_edges(self.indptr, self.indices, nodes, self._bits.zeros, indptr, sources, positions)
        indices = recycled(count, np.int32)
        renumber(sources[:count], layout.place, low, indices)
        csc = torch.from_numpy(indptr), torch.from_numpy(indices)
        block = Block(*csc, len(nodes), symmetric=self.manifest.symmetric)
        rows, inputs = hide_labels(self.features.inputs(nodes), np.flatnonzero(self.is_train[nodes]), key)
        return Batch(
            blocks=[self.features.attach(block, None if positions is None else positions[:count])],
            inputs=inputs,
            target=targets(self.manifest, self.labels[nodes[rows]]),
            num_seeds=len(rows),
            rows=torch.from_numpy(rows),
            num_edges=block.num_edges,
        )

    def _layout(self, epoch: int) -> Layout:
        with self._lock:  # held while it is made: other threads need the same one
            if epoch not in self._layouts:
                key = derive_key(self.seed, epoch, self.rank)
                while len(self._layouts) >= _KEPT_EPOCHS:
                    del self._layouts[min(self._layouts)]
                self._layouts[epoch] = self.lay_out(np.random.Generator(np.random.Philox(key=key)))
            return self._layouts[epoch]


@LOADERS.register("cluster")
class ClusterLoader(SubgraphLoader):
    """ClusterGCN (Chiang et al., KDD 2019, https://arxiv.org/abs/1905.07953, section 3.2).

    Clusters are the parts of the partition stage. Each epoch shuffles them; a batch joins some, with the edges between
    them. Degrees are those within the batch, as there ("re-normalised"). Parts without nodes are left out.
    """

    def __init__(self, config: ClusterLoaderConfig, data: TrainingData) -> None:
        super().__init__(data)
        manifest = data.store.manifest
        assert isinstance(manifest, PartitionManifest)
        offsets = np.asarray(manifest.part_offsets, np.int64)
        filled = np.flatnonzero(np.diff(offsets))
        self.starts, self.stops = offsets[filled], offsets[filled + 1]
        self.clusters_per_batch = config.clusters_per_batch
        self.num_batches = -(-len(filled) // config.clusters_per_batch)

    def lay_out(self, rng: np.random.Generator) -> Layout:
        """Shuffle the clusters."""
        order = rng.permutation(len(self.starts))
        groups = [np.sort(order[part]) for part in blocks(len(order), self.clusters_per_batch)]
        order = np.concatenate(groups)
        starts, sizes = self.starts[order], (self.stops - self.starts)[order]
        ends = np.cumsum(sizes)
        dtype = id_dtype(len(self.indptr) - 1)
        nodes = (np.arange(ends[-1]) + np.repeat(starts - (ends - sizes), sizes)).astype(dtype)
        place = np.empty_like(nodes)
        place[nodes] = np.arange(len(nodes), dtype=dtype)
        last = np.cumsum([len(group) for group in groups]) - 1
        return Layout(nodes, place, np.concatenate([[0], ends[last]]))


@LOADERS.register("random_partition")
class RandomPartitionLoader(SubgraphLoader):
    """All nodes are dealt out to clusters at random, anew for every epoch and rank (Distributed DeepGCNs).

    DeeperGCN (Li et al., 2020, https://arxiv.org/abs/2006.07739) trains on such clusters, but draws each node's by
    itself; here clusters differ by at most one node. An epoch sees every node once and, in the mean, one edge in
    num_clusters. Degrees are those within the batch.
    """

    def __init__(self, config: RandomPartitionConfig, data: TrainingData) -> None:
        super().__init__(data)
        self.num_batches = config.num_clusters

    def lay_out(self, rng: np.random.Generator) -> Layout:
        """Deal out the nodes."""
        num_nodes = len(self.indptr) - 1
        kind = np.uint16 if self.num_batches <= 1 << 16 else np.int64
        cluster = (np.arange(num_nodes) % self.num_batches).astype(kind)
        rng.shuffle(cluster)
        dtype = id_dtype(num_nodes)
        nodes, place = np.empty(num_nodes, dtype), np.empty(num_nodes, dtype)
        bounds = np.zeros(self.num_batches + 1, np.int64)
        group(cluster, bounds, nodes, place)
        return Layout(nodes, place, bounds)


@njit(cache=True, nogil=True)
def group(cluster, bounds, nodes, place):  # type: ignore[no-untyped-def]
    """Sort nodes by cluster, stably: fill bounds (C + 1,), of zeros, nodes (N,) and place (N,), see `Layout`."""
    num_clusters = len(bounds) - 1
    for v in range(len(cluster)):
        bounds[cluster[v] + 1] += 1
    for c in range(num_clusters):
        bounds[c + 1] += bounds[c]
    fill = bounds[:num_clusters].copy()
    for v in range(len(cluster)):
        at = fill[cluster[v]]
        fill[cluster[v]] = at + 1
        nodes[at] = v
        place[v] = at
