"""Passes over all nodes by ranges: several ranges at once on threads, with the same outcome on any number of them.

A pass is a row of waves. A wave looks at some ranges, spread evenly over the graph, each with what all nodes had when
the wave began; then all take over what was chosen. With fewer waves more neighbours would move at once, each to where
the other was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array, row_ranges
from tasks.partition.base import Csr

# 16 workers have work at once. With 32 waves `coarsened` cuts as few edges as where clusters are chosen one node after
# the other (medians over seeds on the graphs of benchmarks/partition.py: +0.2 % debdeps, -0.9 % mdual, +0.5 % large).
# Both numbers are part of what decides the parts.
WAVES, RANGES_PER_WAVE = 32, 16
MIN_MOVED = 0.01
"""A round of clustering that moves less than this share of the nodes is the last."""


class Waves:
    """Ranges of a graph's nodes, and threads that look at them."""

    def __init__(self, csr: Csr, threads: int) -> None:
        """`threads` changes how long passes take and nothing else."""
        views = csr.indptr.view(), csr.indices.view()
        for view in views:  # kernels are compiled for one kind of array
            view.flags.writeable = False
        self._csr, self._threads = Csr(*views), threads
        ranges = row_ranges(csr.indptr, WAVES * RANGES_PER_WAVE)
        self._waves = [ranges[i::WAVES] for i in range(WAVES)]

    def cluster(self, cap: int, rounds: int, seed: int) -> tuple[Array, NDArray[np.int32]]:
        """Join nodes to clusters of at most about `cap` by size-constrained label propagation.

        Returns:
            The cluster of each node, named by a node, id (N,), and the nodes of each cluster, int32 (N,).
        """
        from tasks.partition.kernels.range_moves import Draw, choose_clusters

        num_nodes = self._csr.num_nodes
        label = np.arange(num_nodes, dtype=self._csr.indices.dtype)
        size = np.ones(num_nodes, np.int32)
        with self._pool() as map_ranges:
            for i in range(rounds):
                draw = Draw(seed * 1000 + i, i == 0)
                moved = self._pass(map_ranges, choose_clusters, label, size, cap, draw)
                if moved < MIN_MOVED * num_nodes:
                    break
        return label, size

    def _pass(self, map_ranges: Callable[..., Any], kernel: Callable[..., int], label: Array, *args: Any) -> int:
        """Look at every node once with `kernel`; returns how many moved."""
        from tasks.partition.kernels.range_moves import Rows, apply_choices

        csr, (size, cap, *others), moved = self._csr, args, 0

        def choose(bounds: tuple[int, int]) -> tuple[int, Array]:
            first, last = bounds
            indptr = csr.indptr[first : last + 1]
            own = np.empty(last - first, label.dtype)
            rows = Rows(first, indptr, csr.indices[indptr[0] : indptr[-1]])
            return kernel(rows, label, size, cap, RANGES_PER_WAVE, *others, own), own

        for wave in self._waves:
            chosen = list(map_ranges(choose, wave))
            for (first, _), (count, own) in zip(wave, chosen, strict=True):
                apply_choices(first, own, label, size)
                moved += count
        return moved

    @contextmanager
    def _pool(self) -> Iterator[Callable[..., Any]]:
        """Give a mapping over ranges."""
        if self._threads == 1:
            yield map
            return
        with ThreadPoolExecutor(self._threads) as pool:
            yield pool.map
