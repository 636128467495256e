"""Label propagation by ranges of nodes: several ranges at once, with the same outcome on any number of threads.

A round is a row of waves. A wave looks at some ranges, spread evenly over the graph, each with what all nodes had when
the wave began; then all take over what was chosen. With fewer waves more neighbours would move at once, each to where
the other was.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array, row_ranges
from tasks.partition.base import Csr
from tasks.partition.kernels.range_clusters import RANGES_PER_WAVE, RangeRows, apply_changes, choose_clusters

# 16 threads have work at once. With 32 waves `coarsened` cuts as few edges as where clusters are chosen one node after
# the other (medians over seeds on the graphs of benchmarks/partition.py: +0.2 % debdeps, -0.9 % mdual, +0.5 % large).
# Both numbers are part of what decides the parts.
WAVES = 32
_MIN_MOVED = 0.01  # a round that moves less than this share of the nodes is the last


def cluster_by_ranges(csr: Csr, cap: int, rounds: int, seed: int, threads: int) -> tuple[Array, NDArray[np.int32]]:
    """Join nodes to clusters of at most about `cap` by size-constrained label propagation.

    `csr` is read-only. `threads` changes how long it takes and nothing else.

    Returns:
        The cluster of each node, named by a node, id (N,), and the nodes of each cluster, int32 (N,).
    """
    label, size = np.arange(csr.num_nodes, dtype=csr.indices.dtype), np.ones(csr.num_nodes, np.int32)
    ranges = row_ranges(csr.indptr, WAVES * RANGES_PER_WAVE)

    def look(first: int, last: int, key: int, sample: bool) -> tuple[Array, Array]:
        indptr = csr.indptr[first : last + 1]
        rows = RangeRows(first, indptr, csr.indices[indptr[0] : indptr[-1]])
        chosen = np.empty(last - first, label.dtype)
        choose_clusters(rows, label, size, cap, key, sample, chosen)
        moved = np.flatnonzero(chosen != label[first:last])
        return (moved + first).astype(label.dtype), chosen[moved]

    with ThreadPoolExecutor(threads) as pool:
        for i in range(rounds):
            num_moved = 0
            for wave in range(WAVES):
                jobs = [pool.submit(look, *bounds, seed * 1000 + i, i == 0) for bounds in ranges[wave::WAVES]]
                for nodes, chosen in [job.result() for job in jobs]:
                    apply_changes(nodes, chosen, label, size)
                    num_moved += len(nodes)
            if num_moved < _MIN_MOVED * csr.num_nodes:
                break
    return label, size
