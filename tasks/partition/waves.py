"""Passes over all nodes by ranges: several ranges at once, with the same outcome whoever looks at them.

A pass is a row of waves. A wave looks at some ranges, spread evenly over the graph, each with what all nodes had when
the wave began; then all take over what was chosen. With fewer waves more neighbours would move at once, each to where
the other was.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array, row_ranges
from tasks.partition.base import Csr, Parts

# 16 workers have work at once. With 32 waves `coarsened` cuts as few edges as where clusters are chosen one node after
# the other (medians over seeds on the graphs of benchmarks/partition.py: +0.2 % debdeps, -0.9 % mdual, +0.5 % large).
# Both numbers are part of what decides the parts.
WAVES, RANGES_PER_WAVE = 32, 16
_MIN_CLUSTERED = 0.01  # a round that moves less than this share of the nodes is the last
_MIN_IMPROVED = 0.001

Bounds = tuple[int, int]
"""First node of a range, and the one behind its last."""


class Pass(NamedTuple):
    """What a round chooses for every node."""

    parts: bool
    """Parts, else clusters."""
    cap: int
    """The most nodes of each."""
    key: int = 0
    """Names the round, for ties."""
    sample: bool = False
    """Look at some of the neighbours of large nodes only."""


class Changes(NamedTuple):
    """What nodes of a range chose that is not what they had."""

    nodes: Array
    """id (m,)."""
    chosen: Array
    """id or int32 (m,)."""


def look_at(csr: Csr, bounds: Bounds, what: Pass, label: Array, size: Array) -> Changes:
    """Choose for the nodes of a range; `label` and `size` are as they were when the wave began."""
    from tasks.partition.kernels.range_moves import Draw, Rows, choose_clusters, choose_parts

    first, last = bounds
    indptr = csr.indptr[first : last + 1]
    rows = Rows(first, indptr, csr.indices[indptr[0] : indptr[-1]])
    own = np.empty(last - first, label.dtype)
    if what.parts:
        choose_parts(rows, label, size, what.cap, RANGES_PER_WAVE, own)
    else:
        choose_clusters(rows, label, size, what.cap, RANGES_PER_WAVE, Draw(what.key, what.sample), own)
    moved = np.flatnonzero(own != label[first:last])
    return Changes((moved + first).astype(csr.indices.dtype), own[moved])


class Waves(abc.ABC):
    """Passes over a graph's nodes; who looks at the ranges is left to those who derive from it."""

    def __init__(self, csr: Csr) -> None:
        """Cut the nodes into ranges of about equally many entries."""
        views = csr.indptr.view(), csr.indices.view()
        for view in views:  # kernels are compiled for one kind of array
            view.flags.writeable = False
        self.csr = Csr(*views)
        ranges = row_ranges(csr.indptr, WAVES * RANGES_PER_WAVE)
        self.waves = [ranges[i::WAVES] for i in range(WAVES) if ranges[i::WAVES]]

    @abc.abstractmethod
    def look(self, wave: list[Bounds], what: Pass, label: Array, size: Array) -> Iterable[Changes]:
        """Look at the ranges of a wave; `label` and `size` change only when all have been looked at."""

    def cluster(self, cap: int, rounds: int, seed: int) -> tuple[Array, NDArray[np.int32]]:
        """Join nodes to clusters of at most about `cap` by size-constrained label propagation.

        Returns:
            The cluster of each node, named by a node, id (N,), and the nodes of each cluster, int32 (N,).
        """
        label = np.arange(self.csr.num_nodes, dtype=self.csr.indices.dtype)
        size = np.ones(self.csr.num_nodes, np.int32)
        for i in range(rounds):
            moved = self._pass(Pass(False, cap, seed * 1000 + i, i == 0), label, size)
            if moved < _MIN_CLUSTERED * self.csr.num_nodes:
                break
        return label, size

    def improve(self, parts: Parts, rounds: int) -> None:
        """Move nodes to the parts of most of their neighbours; `parts`, all nodes of weight 1, is changed."""
        for _ in range(rounds):
            moved = self._pass(Pass(True, parts.cap), parts.part, parts.size)
            if moved < _MIN_IMPROVED * self.csr.num_nodes:
                break

    def _pass(self, what: Pass, label: Array, size: Array) -> int:
        """Look at every node once; returns how many moved."""
        from tasks.partition.kernels.range_moves import apply_changes

        moved = 0
        for wave in self.waves:
            for changes in list(self.look(wave, what, label, size)):
                apply_changes(*changes, label, size)
                moved += len(changes.nodes)
        return moved


class ThreadWaves(Waves):
    """Ranges looked at by threads of this process."""

    def __init__(self, csr: Csr, threads: int) -> None:
        """`threads` changes how long passes take and nothing else."""
        super().__init__(csr)
        self._pool = ThreadPoolExecutor(threads)

    def __enter__(self) -> ThreadWaves:
        """Threads start when there is work."""
        return self

    def __exit__(self, *error: object) -> None:
        """End the threads."""
        self._pool.shutdown()

    def look(self, wave: list[Bounds], what: Pass, label: Array, size: Array) -> Iterator[Changes]:
        """Look at the ranges of a wave."""
        return self._pool.map(lambda bounds: look_at(self.csr, bounds, what, label, size), wave)
