"""Which edges of a map in two dimensions others cross.

Two edges cross where each passes between the ends of the other, strictly: edges with a common node do not, nor do those
that only touch. Edges are sorted by where they begin from the left; only those that overlap an edge from left to right
and from below are looked at. That is every edge for one that lies across the whole map, and few in a map of short ones.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.arrays import Array, blocks

_EDGES_A_TASK = 64


def count_crossings(coordinates: Array, pairs: Array, drawn: Array, threads: int = 1) -> NDArray[np.int64]:
    """Return how many of the edges cross each edge that was drawn.

    Args:
        coordinates: (n, 2).
        pairs: nodes of each edge, integers (m, 2), each edge once.
        drawn: rows of `pairs` (k,).
        threads: how many work side by side; they change no result.
    """
    ends = np.asarray(coordinates, np.float64)[pairs].reshape(len(pairs), 4)
    left = np.minimum(ends[:, 0], ends[:, 2])
    order = np.argsort(left, kind="stable")
    place = np.empty(len(pairs), np.int64)
    place[order] = np.arange(len(pairs))
    ends, nodes, left = ends[order], np.ascontiguousarray(pairs[order], np.int64), left[order]
    longest = np.maximum.accumulate(np.maximum(ends[:, 0], ends[:, 2]))
    low, high = np.minimum(ends[:, 1], ends[:, 3]), np.maximum(ends[:, 1], ends[:, 3])
    counts, places = np.zeros(len(drawn), np.int64), place[drawn]

    def work(part: slice) -> None:
        count_part(ends, nodes, left, longest, low, high, places[part], counts[part])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, blocks(len(drawn), _EDGES_A_TASK)))
    return counts


@njit(cache=True, nogil=True)
def count_part(ends, nodes, left, longest, low, high, places, counts):  # type: ignore[no-untyped-def]
    """Count the crossings of the edges at some places (k,) into counts (k,).

    Args:
        ends: x and y of both ends, float64 (m, 4), sorted by `left`, the smaller x (m,).
        nodes: of both ends, int64 (m, 2).
        longest: the largest x of this edge and those before it (m,).
        low: the smaller y of each edge (m,); `high` the larger one.
        places: rows of these (k,).
        counts: int64 (k,).
    """
    for i in range(len(places)):
        p = places[i]
        a, b, c, d = ends[p]
        right = max(a, c)
        # Edges before this place end left of it: they overlap none of it.
        first = np.searchsorted(longest, left[p])
        end = np.searchsorted(left, right, side="right")
        for q in range(first, end):
            if low[q] <= high[p] and high[q] >= low[p] and _crosses(ends, nodes, p, q, a, b, c, d):
                counts[i] += 1


@njit(cache=True, nogil=True)
def _crosses(ends, nodes, p, q, a, b, c, d):  # type: ignore[no-untyped-def]
    """Return whether edge p, from (a, b) to (c, d), crosses edge q."""
    for i in nodes[p]:
        if i == nodes[q, 0] or i == nodes[q, 1]:
            return False
    e, f, g, h = ends[q]
    if _turn(a, b, c, d, e, f) * _turn(a, b, c, d, g, h) >= 0:
        return False
    return _turn(e, f, g, h, a, b) * _turn(e, f, g, h, c, d) < 0


@njit(inline="always")
def _turn(a, b, c, d, x, y):  # type: ignore[no-untyped-def]
    """Return on which side of the line from (a, b) to (c, d) the point (x, y) lies: 1, 0 or -1."""
    return np.sign((c - a) * (y - b) - (d - b) * (x - a))
