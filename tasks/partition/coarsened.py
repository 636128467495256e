"""Coarsening before METIS: multilevel partitioning whose largest levels fit into little memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from configs.registry import PARTITIONERS
from tasks.arrays import Array
from tasks.partition.base import Csr, Graph, PartitionContext, Partitioner, Parts
from tasks.partition.configs import CoarsenedPartitionerConfig, PartitionerConfig
from tasks.partition.metis import MetisOptions, part_graph
from tasks.storage.graph_store import id_dtype

# All constants were tuned on the graphs of benchmarks/partition.py (EPYC, 2 cores, November 2026).
_ROUNDS = 4  # of label propagation
_CLUSTERS_PER_PART = 16  # a cluster holds at most this fraction of a part, so that METIS can balance clusters
_SMALL_NODES, _SMALL_NODES_PER_PART = 4_000, 600  # a graph that METIS takes as it is
_MAX_LEVELS = 8
_MIN_SHRINKING = 0.9
_METIS_TRIES = 3  # initial partitions of the coarsest graph, the best is taken
_BLOCK = 1024  # nodes that are shuffled among each other: random enough for ties, near enough for caches
_PATIENCE = 30  # moves of a local search without a new best
_FINE_WORK, _COARSE_WORK = 2, 20  # adjacency reads of a search pass over the edges of the level
_FINE_RATE, _COARSE_RATE = 1e-3, 1e-4  # a search goes on while reading all edges once would cut the cut by this share
_FINE_MAX_DEGREE = 200  # hubs of the graph itself are looked at once, not after every move beside them
_SEARCH_PASSES = 2


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


@dataclass(frozen=True)
class Limits:
    """What parts may weigh."""

    num_parts: int
    cap: int
    train_cap: int
    cluster_cap: int
    cluster_train_cap: int


@PARTITIONERS.register("coarsened")
class CoarsenedPartitioner(Partitioner):
    """Clusters the graph before METIS sees it: METIS' quality on large graphs in a fraction of its time and memory.

    1. Size-constrained label propagation joins nodes to clusters, clusters become the nodes of a smaller graph, and
       so on until METIS can take it in passing.
    2. METIS splits the smallest graph.
    3. On the way back each level is refined: greedy moves, then local searches that may pass through worse cuts.
    4. `cycles` more rounds cluster the graph inside of the parts and refine from there, which moves whole groups.

    Memory beyond the graph: about 30 bytes a node, 8 bytes an edge between clusters, and METIS on the smallest graph.
    """

    Config = CoarsenedPartitionerConfig

    config: CoarsenedPartitionerConfig

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        """Return the part of each node, (num_nodes,)."""
        config, context = self.config, context or PartitionContext()
        finest = _finest_level(csr, context.train_idx)
        limits = _limits(finest, num_parts, config.imbalance)
        levels, labels = [finest], []
        while not _is_small(levels[-1], num_parts) and len(levels) < _MAX_LEVELS:
            label, coarse = coarsen(levels[-1], limits, config.seed + len(levels))
            if coarse.num_nodes > _MIN_SHRINKING * levels[-1].num_nodes:
                break
            levels.append(coarse)
            labels.append(label)
        coarsest = levels[-1]
        context.message(
            f"{csr.num_nodes:,} nodes and {csr.num_edges:,} edge ends became {coarsest.num_nodes:,} and "
            f"{coarsest.num_edges:,} in {len(labels)} steps"
        )
        parts = _split(coarsest, limits, config, fine=not labels)
        while labels:
            levels.pop()
            parts = _project(parts, labels.pop(), levels[-1])
            refine(levels[-1], parts, config.seed, fine=len(levels) == 1)
        for i in range(config.cycles):
            parts = _cycle(finest, parts, limits, config.seed + 100 + i)
        part: NDArray[np.int32] = parts.part
        return part


def _finest_level(csr: Csr, train_idx: Array | None) -> Level:
    train = np.zeros(0 if train_idx is None else csr.num_nodes, np.int32)
    if train_idx is not None:
        train[train_idx] = 1
    graph = _read_only(csr.indptr, csr.indices, np.zeros(0, id_dtype(csr.num_edges)))
    return Level(graph, np.ones(csr.num_nodes, np.int32), train)


def _read_only(*arrays: Array) -> Graph:
    """Return a graph of read-only views: kernels are then compiled for one kind of array instead of two."""
    views = [np.asarray(array).view() for array in arrays]
    for view in views:
        view.flags.writeable = False
    return Graph(*views)


def _limits(level: Level, num_parts: int, imbalance: float) -> Limits:
    total, train_total = level.num_nodes, int(level.train.sum())
    return Limits(
        num_parts,
        cap=int(np.ceil((1 + imbalance) * total / num_parts)),
        train_cap=int(np.ceil((1 + imbalance) * train_total / num_parts)),
        cluster_cap=max(2, total // (num_parts * _CLUSTERS_PER_PART)),
        cluster_train_cap=max(1, train_total // (num_parts * _CLUSTERS_PER_PART)),
    )


def _is_small(level: Level, num_parts: int) -> bool:
    return level.num_nodes <= max(_SMALL_NODES, _SMALL_NODES_PER_PART * num_parts)


def coarsen(
    level: Level, limits: Limits, seed: int, group: NDArray[np.int32] | None = None, rounds: int = _ROUNDS
) -> tuple[Array, Level]:
    """Cluster a level, within each `group`, int32 (n,), by some rounds of label propagation, and contract it.

    Returns:
        The cluster of each node, ids (n,), and the graph of clusters.
    """
    from tasks.partition import _clustering as kernels

    n, ids = level.num_nodes, level.graph.indices.dtype
    order, label = np.empty(n, ids), np.arange(n, dtype=ids)
    kernels.degree_order(level.graph.indptr, order)
    kernels.shuffle_blocks(order, _BLOCK, seed)
    size, train_size = level.weight.copy(), level.train.copy()
    rating = np.zeros(n, level.graph.edge_weight.dtype)
    caps = (limits.cluster_cap, limits.cluster_train_cap)
    clusters = Parts(label, level.weight, level.train, size, train_size, *caps)
    groups = np.zeros(0, np.int32) if group is None else group
    kernels.propagate(level.graph, clusters, groups, order, rounds, seed, rating)
    if group is None:
        order[:] = -1
        kernels.join_two_hop(level.graph, clusters, rating, order)
    order[:] = -1
    num_clusters = kernels.number_clusters(label, order)
    del clusters, size, train_size, rating
    return label, _contract(level, label, num_clusters, order)


def _contract(level: Level, label: Array, num_clusters: int, scratch: Array) -> Level:
    """Return the graph of clusters; `scratch`, ids (n,), is overwritten."""
    from tasks.partition._clustering import contract

    graph = level.graph
    indptr = np.empty(num_clusters + 1, np.int64)
    # As long as the graph itself, but pages that are never touched take no memory.
    indices, edge_weight = np.empty_like(graph.indices), np.empty(level.num_edges, graph.edge_weight.dtype)
    end = contract(graph, label, scratch, Graph(indptr, indices, edge_weight))
    weight = _sums(label, level.weight, num_clusters).astype(np.int32)
    train = _sums(label, level.train, num_clusters).astype(np.int32) if len(level.train) else level.train
    return Level(_read_only(indptr, indices[:end], edge_weight[:end]), weight, train)


def _sums(label: Array, counts: Array, num_labels: int) -> NDArray[np.int64]:
    """Return the sum of the counts (n,) of each label; zeros where there are no counts."""
    return np.bincount(label, counts if len(counts) else np.zeros(len(label)), num_labels).astype(np.int64)


def _split(level: Level, limits: Limits, config: PartitionerConfig, *, fine: bool) -> Parts:
    """METIS on the smallest graph, k ways at once and by bisection; the better one after refinement."""
    from tasks.partition._refinement import weighted_cut

    graph = level.graph
    weights = level.weight[:, None] if not len(level.train) else np.stack([level.weight, level.train], 1)
    weight = {"node_weight": weights.astype(np.int64)}
    if len(graph.edge_weight):
        weight["edge_weight"] = graph.edge_weight.astype(np.int64)
    found, cuts = [], []
    for recursive in (False,) if fine else (False, True):
        options = MetisOptions(config.imbalance, config.seed + 1, _METIS_TRIES, recursive)
        part = part_graph(graph.indptr, graph.indices, limits.num_parts, options, **weight)
        size, train_size = (_sums(part, counts, limits.num_parts) for counts in (level.weight, level.train))
        found.append(Parts(part, level.weight, level.train, size, train_size, limits.cap, limits.train_cap))
        refine(level, found[-1], config.seed, fine=fine)
        cuts.append(weighted_cut(graph, part))
    return found[int(np.argmin(cuts))]


def _project(parts: Parts, label: Array, level: Level) -> Parts:
    """Return the same partition of the next finer level."""
    return parts._replace(part=parts.part[label], weight=level.weight, train=level.train)


def refine(level: Level, parts: Parts, seed: int, *, fine: bool) -> None:
    """Improve the partition of a level in place; `fine`: it is the graph itself, where reading edges costs most."""
    from tasks.partition import _clustering, _local_search, _refinement

    graph, num_parts = level.graph, len(parts.size)
    if (parts.size > parts.cap).any() or (parts.train_size > parts.train_cap).any():
        _refinement.rebalance(graph, parts)
    _refinement.descend(graph, parts, 4 if fine else 6)
    cut = _refinement.weighted_cut(graph, parts.part) // 2
    work, rate = (_FINE_WORK, _FINE_RATE) if fine else (_COARSE_WORK, _COARSE_RATE)
    # With a table of k numbers a node, a candidate costs k reads, not its degree; small dense graphs gain by that.
    tabled = not fine and 2 * level.num_edges >= num_parts * level.num_nodes
    table = np.zeros((level.num_nodes if tabled else 0, num_parts), graph.edge_weight.dtype)
    _local_search.fill_table(graph, parts.part, table)
    max_degree = _FINE_MAX_DEGREE if fine else level.num_nodes + num_parts
    order = np.arange(level.num_nodes, dtype=graph.indices.dtype)
    for i in range(_SEARCH_PASSES):
        _clustering.shuffle_blocks(order, level.num_nodes, seed + i)
        reads = (work * level.num_edges, level.num_edges // 4)
        gain = _local_search.search(graph, parts, table, order, _PATIENCE, max_degree, *reads, rate * cut / 4)
        if gain < 1e-3 * cut:
            break
        cut -= gain


def _cycle(finest: Level, parts: Parts, limits: Limits, seed: int) -> Parts:
    """Cluster inside of the parts, refine the graph of clusters from the partition that there is, and come back."""
    label, coarse = coarsen(finest, limits, seed, group=parts.part, rounds=2)
    part = np.empty(coarse.num_nodes, np.int32)
    part[label] = parts.part
    above = parts._replace(part=part, weight=coarse.weight, train=coarse.train)
    refine(coarse, above, seed, fine=False)
    below = _project(above, label, finest)
    refine(finest, below, seed, fine=True)
    return below
