"""Drawing a layer's edges from the in-edges of a graph, or of a range of its nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from models.kernels.memory import recycled
from tasks.arrays import Array
from tasks.sampling.neighborhoods import draws

_ALL = 1 << 62


@dataclass(frozen=True)
class Seeds:
    """What one batch is sampled around."""

    nodes: Array
    """(n,), distinct."""
    key: int
    """What to draw; the same key draws the same."""
    excluded: Array | None = None
    """int64 (2, m): pairs in seed numbering whose edges, both ways, carry no messages."""


@dataclass
class Sample:
    """One sampled layer."""

    indptr: Array
    """int64 (num_dst + 1,)."""
    indices: Array
    """int32 (E,): sources in local numbers; node ids where they got none (see `NeighborSampler.sample`)."""
    positions: Array | None
    """int64 (E,): CSC position of each edge; None where they were not asked for."""
    degree: Array
    """float32 (num_src,): in-degrees in the whole graph without what is excluded; only the destinations' (num_dst,)
    where sources got no local numbers."""
    weight: Array | None = None
    """float32 (E,): 1 / pi, with pi the chance that the edge was taken, where that was asked for.

    The sum over the edges taken of weight * x expects the sum over all in-edges (Horvitz, Thompson: A generalization of
    sampling without replacement from a finite universe, 1952).
    """


class InEdges:
    """The in-edges of nodes first, first + 1, ... of a graph.

    What is drawn for a node depends on the key and on the node's id: whoever holds it draws the same. Several threads
    may share one.
    """

    def __init__(self, indptr: Array, indices: Array, *, first: int = 0, inverse_chances: bool = False) -> None:
        """Open them.

        Args:
            indptr: int64 (n + 1,), of nodes first to first + n - 1; begins with 0.
            indices: int32 or int64 (E,), sources of their in-edges.
            first: the first node's id.
            inverse_chances: whether to fill `Sample.weight`.
        """
        self.indptr, self.indices, self.first = frozen(indptr), frozen(indices), first
        self.inverse_chances = inverse_chances

    def draw(self, nodes: Array, fanout: int, key: int) -> Sample:
        """Draw one layer's edges into nodes (n,), like `indices`; sources are node ids, degrees the destinations'."""
        counts, degree = recycled(len(nodes) + 1, np.int64), recycled(len(nodes), np.float32)
        if 0 <= fanout <= draws.SMALL_FANOUT:
            room = (len(nodes) + 1) * fanout  # with what the kernel writes beyond the end
        else:
            room = int(draws.count_edges(self.indptr, self.first, nodes, _ALL if fanout < 0 else fanout))
        positions, ids = recycled(room, np.int64), recycled(room, self.indices.dtype)
        if fanout < 0:
            draws.take_all(self.indptr, self.first, nodes, counts, degree, positions)
        else:
            draws.draw_uniform(self.indptr, self.first, nodes, fanout, key, counts, degree, positions)
        total = int(counts[-1])
        draws.gather_ids(self.indices, positions[:total], ids)
        weight = None
        if self.inverse_chances:
            weight = recycled(total, np.float32)
            draws.inverse_chances(counts, degree, weight)
        return Sample(counts, ids[:total], positions[:total], degree, weight)

    def degrees(self, nodes: Array) -> Array:
        """Return the in-degrees of nodes (n,): float32."""
        degree = recycled(len(nodes), np.float32)
        draws.in_degrees(self.indptr, self.first, nodes, degree)
        return degree


def frozen(array: Array) -> Array:
    """Return a read-only view without the memory map's class, so that numba compiles a kernel once for all stores."""
    view = np.asarray(array).view()
    view.setflags(write=False)
    return view


@njit(cache=True, nogil=True)
def find_edge(indptr, indices, source, target):  # type: ignore[no-untyped-def]
    """Return the CSC position of source -> target, or -1 (binary search)."""
    low, high = indptr[target], indptr[target + 1]
    stop = high
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < source:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and indices[low] == source else -1
