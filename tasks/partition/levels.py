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
from tasks.partition.base import Clusters, Csr, Parts, WeightedCsr
from tasks.partition.kernels import clustering
from tasks.partition.kernels.contraction import close_gaps, contract_rows, group_members
from tasks.partition.kernels.moves import move_all
from tasks.partition.kernels.range_clusters import RANGES_PER_WAVE, RangeRows, choose_clusters
from tasks.storage.graph_store import create_array, id_dtype

# Graphs of clusters with room for more entries lie in scratch files: the kernel may take their memory back.
MAPPED_ENTRIES = 1 << 25
_RANGES_PER_THREAD = 8
_ROUNDS = 4  # of label propagation
# 16 threads have work at once. With 32 waves on every level `coarsened` cuts as few edges as where clusters are chosen
# one node after the other (16 parts, means over seeds on the graphs of benchmarks/partition.py: 25.2 % of debdeps, as
# before, 2.35 % of mdual instead of 2.39 %, 38.7 % of large, as before).
# Both numbers are part of what decides the parts.
WAVES = 32
_MIN_MOVED = 0.01  # a round that moves less than this share of the nodes is the last


@dataclass(frozen=True)
class Level:
    """One graph of the hierarchy."""

    graph: WeightedCsr
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


@dataclass(frozen=True)
class Limits:
    """What parts may weigh."""

    num_parts: int
    cap: int
    train_cap: int
    cluster_cap: int
    cluster_train_cap: int


def finest_level(csr: Csr, train_idx: Array | None) -> Level:
    """Return the graph itself; `train_idx`: training nodes, where they are balanced."""
    train = np.zeros(0 if train_idx is None else csr.num_nodes, np.int32)
    if train_idx is not None:
        train[train_idx] = 1
    graph = read_only(csr.indptr, csr.indices, np.zeros(0, id_dtype(csr.num_edges)))
    return Level(graph, np.ones(csr.num_nodes, np.int32), train)


def read_only(*arrays: Array) -> WeightedCsr:
    """Return a graph of read-only views: kernels are then compiled for one kind of array instead of two."""
    views = [np.asarray(array).view() for array in arrays]
    for view in views:
        view.flags.writeable = False
    return WeightedCsr(*views)


def coarsen(level: Level, limits: Limits, seed: int, threads: int, scratch: Path) -> tuple[Array, Level]:
    """Cluster a level by some rounds of label propagation, and contract it.

    Threads change no result. `scratch` is a folder for files as large as the graph.

    Returns:
        The cluster of each node, ids (n,), and the graph of clusters.
    """
    graph, n, ids = level.graph, level.num_nodes, level.graph.indices.dtype
    caps = (limits.cluster_cap, limits.cluster_train_cap)
    label = np.arange(n, dtype=ids)
    clusters = Parts(label, level.weight, level.train, level.weight.copy(), level.train.copy(), *caps)
    cluster_by_ranges(graph, clusters, _ROUNDS, seed, threads)
    members = np.full(n, -1, ids)
    clustering.join_two_hop(graph, clusters, np.zeros(n, graph.edge_weight.dtype), members)
    members[:] = -1
    num_clusters = clustering.number_clusters(label, members)
    del clusters
    return label, _contract(level, label, num_clusters, members, threads, scratch)


def _contract(level: Level, label: Array, num_clusters: int, members: Array, threads: int, scratch: Path) -> Level:
    """Return the graph of clusters; `members`, ids (n,), is overwritten."""
    graph = level.graph
    first_member, first_entry = np.zeros((2, num_clusters + 1), np.int64)
    clusters = Clusters(label, members, first_member, first_entry)
    files: list[Path] = []
    group_members(graph.indptr, clusters)

    def entries(dtype: np.dtype[np.signedinteger]) -> Array:
        """Return room for as many entries as the graph has; what is not needed is not touched."""
        if level.num_edges <= MAPPED_ENTRIES:
            return np.empty(level.num_edges, dtype)
        files.append(scratch / f"level-{uuid.uuid4().hex}.npy")
        return np.asarray(create_array(files[-1], (level.num_edges,), dtype))

    indptr = np.empty(num_clusters + 1, np.int64)
    coarse = WeightedCsr(indptr, entries(graph.indices.dtype), entries(graph.edge_weight.dtype))
    ranges = row_ranges(first_entry, 1 if threads == 1 else threads * _RANGES_PER_THREAD)
    with ThreadPoolExecutor(threads) as pool:
        for job in [pool.submit(contract_rows, *at, first_entry, graph, clusters, coarse) for at in ranges]:
            job.result()
    end = close_gaps(np.array([0, *(last for _, last in ranges)]), first_entry, coarse)
    coarse = read_only(indptr, coarse.indices[:end], coarse.edge_weight[:end])
    for file, array in zip(files, coarse[1:], strict=False):
        os.truncate(file, file.stat().st_size - (level.num_edges - end) * array.itemsize)  # what lies behind the end
        file.unlink()  # its room is free once nobody reads it
    weight = sums(label, level.weight, num_clusters).astype(np.int32)
    train = sums(label, level.train, num_clusters).astype(np.int32) if len(level.train) else level.train
    return Level(coarse, weight, train)


def sums(label: Array, counts: Array, num_labels: int) -> NDArray[np.int64]:
    """Return the sum of the counts (n,) of each label; zeros where there are no counts."""
    if not len(counts):
        return np.zeros(num_labels, np.int64)
    return np.bincount(label, counts, num_labels).astype(np.int64)


def cluster_by_ranges(graph: WeightedCsr, clusters: Parts, rounds: int, seed: int, threads: int) -> None:
    """Join nodes to clusters of at most about their cap by size-constrained label propagation.

    Clusters are named by a node, each node its own at first. A round is a row of waves: a wave looks at some ranges of
    nodes, spread evenly over the graph, each with what all nodes had when the wave began; then all take over what was
    chosen. With fewer waves more neighbours would move at once, each to where the other was. `threads` changes how long
    it takes and nothing else.
    """
    indptr, indices, edge_weight = graph
    label, num_nodes = clusters.part, len(clusters.part)
    ranges = row_ranges(indptr, WAVES * RANGES_PER_WAVE)

    def look(first: int, last: int, key: int, sample: bool) -> tuple[Array, Array]:
        begin, end = indptr[first], indptr[last]
        rows = RangeRows(first, indptr[first : last + 1], indices[begin:end], edge_weight[begin:end])
        chosen = np.empty(last - first, label.dtype)
        choose_clusters(rows, clusters, key, sample, chosen)
        moved = np.flatnonzero(chosen != label[first:last])
        return (moved + first).astype(label.dtype), chosen[moved]

    with ThreadPoolExecutor(threads) as pool:
        for i in range(rounds):
            num_moved = 0
            for wave in range(WAVES):
                jobs = [pool.submit(look, *bounds, seed * 1000 + i, i == 0) for bounds in ranges[wave::WAVES]]
                for nodes, chosen in [job.result() for job in jobs]:
                    move_all(nodes, chosen, clusters)
                    num_moved += len(nodes)
            if num_moved < _MIN_MOVED * num_nodes:
                break
