"""Coarsening before METIS: multilevel partitioning whose largest levels fit into little memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from configs.registry import PARTITIONERS
from tasks.partition.base import Csr, PartitionContext, Partitioner
from tasks.partition.configs import CoarsenedPartitionerConfig, PartitionerConfig
from tasks.partition.metis import MetisOptions, part_graph
from tasks.storage.graph_store import Array, id_dtype

if TYPE_CHECKING:
    from tasks.partition._moves import Graph

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
    """One graph of the hierarchy. int64 indptr (n + 1,), ids indices (m,), int edge_weight (m,) or (0,),
    int32 weight (n,), int32 train (n,) or (0,).
    """

    indptr: Array
    indices: Array
    edge_weight: Array
    weight: Array
    train: Array

    @property
    def graph(self) -> Graph:
        """What kernels take first."""
        from tasks.partition._moves import Graph

        return Graph(self.indptr, self.indices, self.edge_weight)

    @property
    def num_nodes(self) -> int:
        """Nodes of this level."""
        return len(self.weight)

    @property
    def num_edges(self) -> int:
        """Entries, two an edge."""
        return len(self.indices)


@dataclass(frozen=True)
class Limits:
    """What parts may weigh."""

    num_parts: int
    cap: int
    train_cap: int
    cluster_cap: int
    cluster_train_cap: int


@dataclass(frozen=True)
class State:
    """A partition of one level: int32 part (n,), int64 size and train_size (k,)."""

    part: NDArray[np.int32]
    size: NDArray[np.int64]
    train_size: NDArray[np.int64]


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
        state = _split(coarsest, limits, config, fine=not labels)
        while labels:
            levels.pop()
            state = _project(state, labels.pop())
            refine(levels[-1], state, limits, config.seed, fine=len(levels) == 1)
        for i in range(config.cycles):
            state = _cycle(finest, state, limits, config.seed + 100 + i)
        return state.part


def _finest_level(csr: Csr, train_idx: Array | None) -> Level:
    train = np.zeros(0 if train_idx is None else csr.num_nodes, np.int32)
    if train_idx is not None:
        train[train_idx] = 1
    weight = np.ones(csr.num_nodes, np.int32)
    return Level(
        _frozen(csr.indptr), _frozen(csr.indices), _frozen(np.zeros(0, id_dtype(csr.num_edges))), weight, train
    )


def _frozen(array: Array) -> Array:
    """Return a read-only view: kernels are then compiled for one kind of array instead of two."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _limits(level: Level, num_parts: int, imbalance: float) -> Limits:
    total, train_total = int(level.num_nodes), int(level.train.sum())
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
    """Cluster a level and contract it.

    Args:
        level: the graph.
        limits: how heavy clusters may become.
        seed: of visits and ties.
        group: int32 (n,); clusters stay within a group.
        rounds: of label propagation.

    Returns:
        The cluster of each node, ids (n,), and the graph of clusters.
    """
    from tasks.partition import _clustering as kernels
    from tasks.partition._moves import Parts

    n, ids = level.num_nodes, level.indices.dtype
    order, label = np.empty(n, ids), np.arange(n, dtype=ids)
    kernels.degree_order(level.indptr, order)
    kernels.shuffle_blocks(order, _BLOCK, seed)
    size, train_size = level.weight.copy(), level.train.copy()
    rating = np.zeros(n, level.edge_weight.dtype)
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

    indptr = np.empty(num_clusters + 1, np.int64)
    # As long as the graph itself, but pages that are never touched take no memory.
    indices, edge_weight = np.empty(level.num_edges, label.dtype), np.empty(level.num_edges, level.edge_weight.dtype)
    end = contract(level.graph, label, scratch, indptr, indices, edge_weight)
    weight = np.bincount(label, level.weight, num_clusters).astype(np.int32)
    train = level.train
    if len(train):
        train = np.bincount(label, level.train, num_clusters).astype(np.int32)
    return Level(_frozen(indptr), _frozen(indices[:end]), _frozen(edge_weight[:end]), weight, train)


def _split(level: Level, limits: Limits, config: PartitionerConfig, *, fine: bool) -> State:
    """METIS on the smallest graph, k ways at once and by bisection; the better one after refinement."""
    from tasks.partition._refinement import weighted_cut

    weights = level.weight[:, None] if not len(level.train) else np.stack([level.weight, level.train], 1)
    edge_weight = level.edge_weight.astype(np.int64) if len(level.edge_weight) else None
    states, cuts = [], []
    for recursive in (False,) if fine else (False, True):
        options = MetisOptions(config.imbalance, config.seed + 1, _METIS_TRIES, recursive)
        part = part_graph(
            level.indptr,
            level.indices,
            limits.num_parts,
            options,
            node_weight=weights.astype(np.int64),
            edge_weight=edge_weight,
        )
        states.append(_measure(level, part, limits.num_parts))
        refine(level, states[-1], limits, config.seed, fine=fine)
        cuts.append(weighted_cut(level.graph, states[-1].part))
    return states[int(np.argmin(cuts))]


def _measure(level: Level, part: NDArray[np.int32], num_parts: int) -> State:
    size = np.bincount(part, level.weight, num_parts).astype(np.int64)
    train = np.zeros(num_parts, np.int64)
    if len(level.train):
        train = np.bincount(part, level.train, num_parts).astype(np.int64)
    return State(part, size, train)


def _project(state: State, label: Array) -> State:
    """The same partition one level further down."""
    return State(state.part[label], state.size, state.train_size)


def refine(level: Level, state: State, limits: Limits, seed: int, *, fine: bool) -> None:
    """Improve the partition of a level in place; `fine`: it is the graph itself, where reading edges costs most."""
    from tasks.partition import _clustering, _local_search, _refinement
    from tasks.partition._moves import Parts

    graph, caps = level.graph, (limits.cap, limits.train_cap)
    parts = Parts(state.part, level.weight, level.train, state.size, state.train_size, *caps)
    if (state.size > limits.cap).any() or (state.train_size > limits.train_cap).any():
        _refinement.rebalance(graph, parts)
    _refinement.descend(graph, parts, 4 if fine else 6)
    cut = _refinement.weighted_cut(graph, state.part) // 2
    work, rate = (_FINE_WORK, _FINE_RATE) if fine else (_COARSE_WORK, _COARSE_RATE)
    # With a table of k numbers a node, a candidate costs k reads, not its degree; small dense graphs gain by that.
    tabled = not fine and 2 * level.num_edges >= limits.num_parts * level.num_nodes
    table = np.zeros((level.num_nodes if tabled else 0, limits.num_parts), level.edge_weight.dtype)
    _local_search.fill_table(graph, state.part, table)
    max_degree = _FINE_MAX_DEGREE if fine else level.num_nodes + limits.num_parts
    order = np.arange(level.num_nodes, dtype=level.indices.dtype)
    for i in range(_SEARCH_PASSES):
        _clustering.shuffle_blocks(order, level.num_nodes, seed + i)
        reads = (work * level.num_edges, level.num_edges // 4)
        gain = _local_search.search(graph, parts, table, order, _PATIENCE, max_degree, *reads, rate * cut / 4)
        if gain < 1e-3 * cut:
            break
        cut -= gain


def _cycle(finest: Level, state: State, limits: Limits, seed: int) -> State:
    """Cluster inside of the parts, refine the graph of clusters from the partition that there is, and come back."""
    label, coarse = coarsen(finest, limits, seed, group=state.part, rounds=2)
    part = np.empty(coarse.num_nodes, np.int32)
    part[label] = state.part
    above = State(part, state.size, state.train_size)
    refine(coarse, above, limits, seed, fine=False)
    below = _project(above, label)
    refine(finest, below, limits, seed, fine=True)
    return below
