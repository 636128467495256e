"""The graphs of multilevel partitioning: a level, and the smaller one of its clusters."""

from __future__ import annotations

import os
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array, row_ranges
from tasks.partition.base import Clusters, Csr, Graph, PartitionContext, Parts
from tasks.partition.waves import ThreadWaves
from tasks.storage.graph_store import create_array, id_dtype

_BLOCK = 1024  # nodes that are shuffled among each other: random enough for ties, near enough for caches
# Graphs of clusters with room for more entries lie in scratch files: the kernel may take their memory back.
MAPPED_ENTRIES = 1 << 25
_RANGES_PER_THREAD = 8


@dataclass(frozen=True)
class Level:
    """One graph of the hierarchy."""

    graph: Graph
    weight: Array
    """int32 (n,): nodes of the whole graph in each node."""
    train: Array
    """int32 (n,): training nodes in each; or empty: they are not balanced."""

    @property
    def num_nodes(self) -> int:
        """Nodes of this level."""
        return len(self.weight)

    @property
    def num_edges(self) -> int:
        """Entries, two an edge."""
        return len(self.graph.indices)

    @property
    def in_waves(self) -> bool:
        """Whether passes by ranges of nodes can work on it: all nodes and edges count one."""
        return not len(self.graph.edge_weight) and not len(self.train)


@dataclass(frozen=True)
class Limits:
    """What parts may weigh."""

    num_parts: int
    cap: int
    train_cap: int
    cluster_cap: int
    cluster_train_cap: int


@dataclass(frozen=True)
class Resources:
    """What the work may use; it changes no result."""

    threads: int = 1
    scratch: Path | None = None
    """Folder for files as large as the graph; None: memory."""

    @classmethod
    def of(cls, threads: int, context: PartitionContext) -> Resources:
        """`threads`: 0 takes one a core."""
        return cls(threads or os.cpu_count() or 1, context.scratch)


def finest_level(csr: Csr, train_idx: Array | None) -> Level:
    """Return the graph itself; `train_idx`: training nodes, where they are balanced."""
    train = np.zeros(0 if train_idx is None else csr.num_nodes, np.int32)
    if train_idx is not None:
        train[train_idx] = 1
    graph = read_only(csr.indptr, csr.indices, np.zeros(0, id_dtype(csr.num_edges)))
    return Level(graph, np.ones(csr.num_nodes, np.int32), train)


def read_only(*arrays: Array) -> Graph:
    """Return a graph of read-only views: kernels are then compiled for one kind of array instead of two."""
    views = [np.asarray(array).view() for array in arrays]
    for view in views:
        view.flags.writeable = False
    return Graph(*views)


def coarsen(
    level: Level,
    limits: Limits,
    resources: Resources,
    seed: int,
    group: NDArray[np.int32] | None = None,
    rounds: int = 4,
) -> tuple[Array, Level]:
    """Cluster a level, within each `group`, int32 (n,), by some rounds of label propagation, and contract it.

    Returns:
        The cluster of each node, ids (n,), and the graph of clusters.
    """
    from tasks.partition.kernels import clustering as kernels

    ids = level.graph.indices.dtype
    if group is None and level.in_waves:
        with ThreadWaves(Csr(level.graph.indptr, level.graph.indices), resources.threads) as waves:
            label, size = waves.cluster(limits.cluster_cap, rounds, seed)
        clusters = Parts(label, level.weight, level.train, size, level.train, limits.cluster_cap, 0)
    else:
        clusters = _cluster_in_order(level, limits, seed, group, rounds)
        label = clusters.part
    scratch = np.full(level.num_nodes, -1, ids)
    if group is None:
        rating = np.zeros(level.num_nodes, level.graph.edge_weight.dtype)
        kernels.join_two_hop(level.graph, clusters, rating, scratch)
        del rating
        scratch[:] = -1
    num_clusters = kernels.number_clusters(label, scratch)
    del clusters
    return label, _contract(level, label, num_clusters, scratch, resources)


def _cluster_in_order(level: Level, limits: Limits, seed: int, group: NDArray[np.int32] | None, rounds: int) -> Parts:
    """Label propagation one node after the other, from those with few neighbours to the hubs."""
    from tasks.partition.kernels import clustering as kernels

    n, ids = level.num_nodes, level.graph.indices.dtype
    order, label = np.empty(n, ids), np.arange(n, dtype=ids)
    kernels.degree_order(level.graph.indptr, order)
    kernels.shuffle_blocks(order, _BLOCK, seed)
    rating = np.zeros(n, level.graph.edge_weight.dtype)
    caps = (limits.cluster_cap, limits.cluster_train_cap)
    clusters = Parts(label, level.weight, level.train, level.weight.copy(), level.train.copy(), *caps)
    groups = np.zeros(0, np.int32) if group is None else group
    kernels.propagate(level.graph, clusters, groups, order, rounds, seed, rating)
    return clusters


def _contract(level: Level, label: Array, num_clusters: int, members: Array, resources: Resources) -> Level:
    """Return the graph of clusters; `members`, ids (n,), is overwritten."""
    from tasks.partition.kernels.contraction import close_gaps, contract_rows, group_members

    graph = level.graph
    first_member, first_entry = np.zeros((2, num_clusters + 1), np.int64)
    clusters = Clusters(label, members, first_member, first_entry)
    group_members(graph.indptr, clusters)
    with _Scratch(resources.scratch, level.num_edges) as scratch:
        # As long as the graph itself; what is not needed is not touched.
        indices, edge_weight = scratch.array(graph.indices.dtype), scratch.array(graph.edge_weight.dtype)
        coarse = Graph(np.empty(num_clusters + 1, np.int64), indices, edge_weight)
        ranges = row_ranges(first_entry, 1 if resources.threads == 1 else resources.threads * _RANGES_PER_THREAD)
        with ThreadPoolExecutor(resources.threads) as pool:
            jobs = [pool.submit(contract_rows, *at, first_entry, graph, clusters, coarse) for at in ranges]
            for job in jobs:
                job.result()
        bounds = np.array([0, *(last for _, last in ranges)])
        end = close_gaps(bounds, first_entry, coarse)
        scratch.cut(end)
    weight = sums(label, level.weight, num_clusters).astype(np.int32)
    train = sums(label, level.train, num_clusters).astype(np.int32) if len(level.train) else level.train
    return Level(read_only(coarse.indptr, indices[:end], edge_weight[:end]), weight, train)


class _Scratch:
    """Arrays of equal length, in memory or, large ones, in files that vanish with the last array that is in them."""

    def __init__(self, folder: Path | None, length: int) -> None:
        self._folder = folder if length > MAPPED_ENTRIES else None
        self._length = length
        self._files: list[tuple[Path, int]] = []

    def __enter__(self) -> _Scratch:
        """Nothing is made yet."""
        return self

    def array(self, dtype: np.dtype[np.signedinteger]) -> Array:
        """Make an array."""
        if self._folder is None:
            return np.empty(self._length, dtype)
        path = self._folder / f"level-{uuid.uuid4().hex}.npy"
        self._files.append((path, dtype.itemsize))
        return np.asarray(create_array(path, (self._length,), dtype))

    def cut(self, length: int) -> None:
        """Give the room behind the first `length` items back; they must not be touched any more."""
        for path, item_bytes in self._files:
            size = path.stat().st_size
            os.truncate(path, size - (self._length - length) * item_bytes)

    def __exit__(self, *error: object) -> None:
        """Take the files' names away: their room is free once nobody reads them."""
        for path, _ in self._files:
            path.unlink()


def sums(label: Array, counts: Array, num_labels: int) -> NDArray[np.int64]:
    """Return the sum of the counts (n,) of each label; zeros where there are no counts."""
    if not len(counts):
        return np.zeros(num_labels, np.int64)
    return np.bincount(label, counts, num_labels).astype(np.int64)
