"""Label propagation by ranges of nodes: several ranges at once, with the same outcome on any number of threads.

A round is a row of waves. A wave looks at some ranges, spread evenly over the graph, each with what all nodes had when
the wave began; then all take over what was chosen. With fewer waves more neighbours would move at once, each to where
the other was.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tasks.arrays import Array, row_ranges
from tasks.partition.base import Parts, WeightedCsr
from tasks.partition.kernels.moves import move_all
from tasks.partition.kernels.range_clusters import RANGES_PER_WAVE, RangeRows, choose_clusters

# 16 threads have work at once. With 32 waves on every level `coarsened` cuts as few edges as where clusters are chosen
# one node after the other (16 parts, means over seeds on the graphs of benchmarks/partition.py: 25.2 % of debdeps, as
# before, 2.35 % of mdual instead of 2.39 %, 38.7 % of large, as before).
# Both numbers are part of what decides the parts.
WAVES = 32
_MIN_MOVED = 0.01  # a round that moves less than this share of the nodes is the last


def cluster_by_ranges(graph: WeightedCsr, clusters: Parts, rounds: int, seed: int, threads: int) -> None:
    """Join nodes to clusters of at most about their cap by size-constrained label propagation.

    Clusters are named by a node, each node its own at first. `threads` changes how long it takes and nothing else.
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
