"""Which edges of a map in two dimensions others cross.

Two edges cross where each passes between the ends of the other, strictly: edges with a common node do not, nor do those
that only touch. Edges are sorted by where they begin from the left; only those that overlap an edge from left to right
and from below are looked at. That is every edge for one that lies across the whole map, and few in a map of short ones.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.arrays import Array, blocks

_EDGES_A_TASK = 64


class SortedEdges(NamedTuple):
    """The m edges of a map, from the left to the right."""

    ends: NDArray[np.float64]
    """(m, 4): x and y of both ends, sorted by `left`."""
    left: NDArray[np.float64]
    """The smaller x (m,)."""
    right: NDArray[np.float64]
    """The larger x (m,)."""
    reached: NDArray[np.float64]
    """The largest x of an edge and of those before it (m,)."""
    low: NDArray[np.float64]
    """The smaller y (m,)."""
    high: NDArray[np.float64]
    """The larger y (m,)."""

    @classmethod
    def of(cls, coordinates: Array, pairs: Array) -> SortedEdges:
        """Sort the edges between points (n, 2): integers (m, 2), each edge once."""
        ends = np.asarray(coordinates, np.float64)[pairs].reshape(len(pairs), 4)
        left = np.minimum(ends[:, 0], ends[:, 2])
        order = np.argsort(left, kind="stable")
        ends, left = ends[order], left[order]
        right, low = np.maximum(ends[:, 0], ends[:, 2]), np.minimum(ends[:, 1], ends[:, 3])
        high = np.maximum(ends[:, 1], ends[:, 3])
        return cls(ends, left, right, np.maximum.accumulate(right), low, high)

    def mean_tests(self) -> float:
        """Return how many edges are looked at for one, on average; 1 at least."""
        first = np.searchsorted(self.reached, self.left)
        end = np.searchsorted(self.left, self.right, side="right")
        return float((end - first).mean())


def count_crossings(edges: SortedEdges, drawn: Array, threads: int = 1) -> NDArray[np.int64]:
    """Return how many of the edges cross each edge that was drawn: rows of `edges` (k,).

    They are counted on several threads, which change no result.
    """
    counts = np.zeros(len(drawn), np.int64)

    def work(part: slice) -> None:
        count_part(*edges, drawn[part], counts[part])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, blocks(len(drawn), _EDGES_A_TASK)))
    return counts


@njit(cache=True, nogil=True)
def count_part(ends, left, right, reached, low, high, places, counts):  # type: ignore[no-untyped-def]
    """Count the crossings of the edges at some places (k,) into counts (k,)."""
    for i in range(len(places)):
        p = places[i]
        a, b, c, d = ends[p]
        # Edges before this place end left of it: they overlap none of it.
        first = np.searchsorted(reached, left[p])
        end = np.searchsorted(left, right[p], side="right")
        for q in range(first, end):
            # Without branches but one: each alone would be foreseen wrongly half of the time.
            if (right[q] >= left[p]) & (low[q] <= high[p]) & (high[q] >= low[p]) and _crosses(a, b, c, d, ends[q]):
                counts[i] += 1


@njit(inline="always")
def _crosses(a, b, c, d, other):  # type: ignore[no-untyped-def]
    """Return whether an edge from (a, b) to (c, d) crosses another one.

    An end that both have is on both lines, exactly: it makes no crossing.
    """
    e, f, g, h = other
    first, second = _side(a, b, c, d, e, f), _side(a, b, c, d, g, h)
    if (first >= 0 or second <= 0) and (first <= 0 or second >= 0):
        return False
    first, second = _side(e, f, g, h, a, b), _side(e, f, g, h, c, d)
    return (first < 0 and second > 0) or (first > 0 and second < 0)


@njit(inline="always")
def _side(a, b, c, d, x, y):  # type: ignore[no-untyped-def]
    """Return a number above 0 left of the line from (a, b) to (c, d), below 0 right of it, and 0 on it."""
    return (c - a) * (y - b) - (d - b) * (x - a)
