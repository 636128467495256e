"""Coarsening before METIS: multilevel partitioning whose largest levels fit into little memory."""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from configs.registry import PARTITIONERS
from tasks.arrays import Array
from tasks.partition.base import Csr, PartitionContext, Partitioner, Parts
from tasks.partition.configs import CoarsenedPartitionerConfig
from tasks.partition.kernels.moves import descend, rebalance, search
from tasks.partition.kernels.quality import weighted_cut
from tasks.partition.levels import Level, Limits, coarsen, finest_level, sums
from tasks.partition.metis import MetisOptions, part_graph

# All constants were tuned on the graphs of benchmarks/partition.py (EPYC, 2 cores, November 2026).
_CLUSTERS_PER_PART = 16  # a cluster holds at most this fraction of a part, so that METIS can balance clusters
_SMALL_NODES, _SMALL_NODES_PER_PART = 4_000, 600  # a graph that METIS takes as it is
_MAX_LEVELS = 8
_MIN_SHRINKING = 0.9
_METIS_TRIES = 3  # initial partitions of the coarsest graph, the best is taken
_PATIENCE = 30  # moves of a local search without a new best
_FINE_WORK, _COARSE_WORK = 2, 20  # adjacency reads of a search pass over the edges of the level
_FINE_RATE, _COARSE_RATE = 1e-3, 1e-4  # a search goes on while reading all edges once would cut the cut by this share
_FINE_MAX_DEGREE = 200  # hubs of the graph itself are looked at once, not after every move beside them
_SEARCH_PASSES = 2


@PARTITIONERS.register("coarsened")
class CoarsenedPartitioner(Partitioner):
    """Clusters the graph before METIS sees it: METIS' quality on large graphs in a fraction of its time and memory.

    1. Size-constrained label propagation joins nodes to clusters, clusters become the nodes of a smaller graph, and
       so on until METIS can take it in passing.
    2. METIS splits the smallest graph.
    3. On the way back each level is refined: greedy moves, then local searches that may pass through worse cuts
       (without these 16 parts cut 26 % more of the mesh mdual, 0.5 % more of debdeps).

    Memory beyond the graph: about 30 bytes a node, and METIS on the smallest graph.
    """

    Config = CoarsenedPartitionerConfig

    config: CoarsenedPartitionerConfig

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        config, context = self.config, context or PartitionContext()
        finest = finest_level(csr, context.train_idx)
        limits = limits_of(finest.weight, context.train_idx, num_parts, config.imbalance)
        threads = config.threads or os.cpu_count() or 1
        levels, labels = [finest], []
        small = max(_SMALL_NODES, _SMALL_NODES_PER_PART * num_parts)
        while levels[-1].num_nodes > small and len(levels) < _MAX_LEVELS:
            label, coarse = coarsen(levels[-1], limits, config.seed + len(levels), threads, context.scratch)
            if coarse.num_nodes > _MIN_SHRINKING * levels[-1].num_nodes:
                break
            levels.append(coarse)
            labels.append(label)
        coarsest = levels[-1]
        context.message(
            f"{finest.num_nodes:,} nodes and {finest.num_edges:,} edge ends became {coarsest.num_nodes:,} and "
            f"{coarsest.num_edges:,} in {len(labels)} steps"
        )
        parts = _split(coarsest, limits, config, fine=not labels)
        while labels:
            levels.pop()
            parts = parts._replace(part=parts.part[labels.pop()], weight=levels[-1].weight, train=levels[-1].train)
            refine(levels[-1], parts, config.seed, fine=len(levels) == 1)
        part: NDArray[np.int32] = parts.part
        return part


def limits_of(weight: Array, train_idx: Array | None, num_parts: int, imbalance: float) -> Limits:
    """Return what parts of nodes of these weights, (n,), may weigh."""
    total, train_total = int(weight.sum()), 0 if train_idx is None else len(train_idx)
    return Limits(
        num_parts,
        cap=int(np.ceil((1 + imbalance) * total / num_parts)),
        train_cap=int(np.ceil((1 + imbalance) * train_total / num_parts)),
        cluster_cap=max(2, total // (num_parts * _CLUSTERS_PER_PART)),
        cluster_train_cap=max(1, train_total // (num_parts * _CLUSTERS_PER_PART)),
    )


def _split(level: Level, limits: Limits, config: CoarsenedPartitionerConfig, *, fine: bool) -> Parts:
    """METIS on the smallest graph, k ways at once and by bisection; the better one after refinement."""
    graph = level.graph
    weights = level.weight[:, None] if not len(level.train) else np.stack([level.weight, level.train], 1)
    weight = {"node_weight": weights.astype(np.int64)}
    if len(graph.edge_weight):
        weight["edge_weight"] = graph.edge_weight.astype(np.int64)
    candidates, cuts = [], []
    for recursive in (False,) if fine else (False, True):
        options = MetisOptions(config.imbalance, config.seed + 1, _METIS_TRIES, recursive)
        part = part_graph(graph.indptr, graph.indices, limits.num_parts, options, **weight)
        size, train_size = (sums(part, counts, limits.num_parts) for counts in (level.weight, level.train))
        candidates.append(Parts(part, level.weight, level.train, size, train_size, limits.cap, limits.train_cap))
        refine(level, candidates[-1], config.seed, fine=fine)
        cuts.append(weighted_cut(graph, part))
    return candidates[int(np.argmin(cuts))]


def refine(level: Level, parts: Parts, seed: int, *, fine: bool) -> None:
    """Improve the partition of a level in place; `fine`: it is the graph itself, where reading edges costs most."""
    graph = level.graph
    if (parts.size > parts.cap).any() or (parts.train_size > parts.train_cap).any():
        rebalance(graph, parts)
    descend(graph, parts, 4 if fine else 6)
    cut = weighted_cut(graph, parts.part) // 2
    work, rate = (_FINE_WORK, _FINE_RATE) if fine else (_COARSE_WORK, _COARSE_RATE)
    max_degree = _FINE_MAX_DEGREE if fine else level.num_nodes
    order, random = np.arange(level.num_nodes, dtype=graph.indices.dtype), np.random.default_rng(seed)
    for _ in range(_SEARCH_PASSES):
        random.shuffle(order)
        reads = (work * level.num_edges, level.num_edges // 4)
        gain = search(graph, parts, order, _PATIENCE, max_degree, *reads, rate * cut / 4)
        if gain < 1e-3 * cut:
            break
        cut -= gain
