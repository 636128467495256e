"""How well a map of a graph shows its edges.

| measure | what | best |
|---|---|---|
| stretched_edges | share of edges longer than five times the median | 0 |
| crossing_edges | share of edges that another edge crosses | 0 |
| crossings_per_edge | how many edges cross one, on average | 0 |
| graph_neighbors_kept | of as many nearest points as a node has neighbours, the share that are its neighbours | 1 |
| stress | mean of (s length / distance - 1)^2 over pairs with a path, distance in edges, by the best scale s | 0 |

The fourth is the neighbourhood preservation of Kruiger et al. (Graph Layouts by t-SNE, EuroVis 2017), with the nearest
counted instead of the Jaccard index; the last the normalised stress of Gansner, Koren and North (Graph Drawing 2004).
Graphs are CSR, indptr int64 (n + 1,) and indices (E,), each edge in both directions; loops are not looked at.

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
from tasks.layout.quality.points import Estimate, Map

STRETCHED = 5.0
MOST_NEIGHBORS = 100
"""Nearest points that are looked at of a node, also where it has more neighbours."""
_EDGES_A_TASK = 64


def lengths_between(coordinates: Array, first: Array, second: Array) -> NDArray[np.float64]:
    """Return the distances of points (m,)."""
    apart = coordinates[first].astype(np.float64) - coordinates[second]
    lengths: NDArray[np.float64] = np.sqrt(np.einsum("nd,nd->n", apart, apart))
    return lengths


def stretched_edges(lengths: Array, population: int) -> Estimate:
    """Return the share of lengths (m,), m > 0, above five times the median."""
    return Estimate.of(lengths > STRETCHED * float(np.median(lengths)), population)


def graph_neighbors_kept(layout: Map, indptr: Array, indices: Array, nodes: Array, population: int) -> Estimate:
    """Return the share over nodes (m,) with neighbours; at most the nearest 100 points of a node are looked at."""
    degree = np.minimum(indptr[nodes + 1] - indptr[nodes], min(MOST_NEIGHBORS, len(indptr) - 2))
    shares = np.zeros(len(nodes))
    levels = np.ceil(np.log2(np.maximum(degree, 1))).astype(np.int64)
    for level in np.unique(levels):  # nodes of about the same degree together: no more points are searched than needed
        at = np.flatnonzero(levels == level)
        near = layout.nearest(nodes[at], int(degree[at].max()))
        shares[at] = kept_shares(indptr, indices, nodes[at], near)
    return Estimate.of(shares, population)


@njit(cache=True, nogil=True)
def kept_shares(indptr, indices, nodes, near):  # type: ignore[no-untyped-def]
    """Return the share of the nearest ones, (m, k), that are neighbours of the nodes (m,): float64 (m,).

    The first as many are looked at as the node has different neighbours.
    """
    shares = np.zeros(len(nodes))
    for i in range(len(nodes)):
        row = np.unique(indices[indptr[nodes[i]] : indptr[nodes[i] + 1]])
        row = row[row != nodes[i]]
        count = min(len(row), near.shape[1])
        for j in range(count):
            at = np.searchsorted(row, near[i, j])
            shares[i] += (at < len(row) and row[at] == near[i, j]) / count
    return shares


def stress(coordinates: Array, indptr: Array, indices: Array, sources: Array, targets: Array) -> Estimate | None:
    """Return the stress over paths from each source (s,) to each target (t,); None: there are none, or no lengths."""
    distances, lengths = [], []
    for source in sources:
        steps = path_lengths(indptr, indices, source)[targets]
        reached = steps > 0
        distances.append(steps[reached])
        lengths.append(lengths_between(coordinates, np.full(reached.sum(), source), targets[reached]))
    relative = np.concatenate(lengths) / np.concatenate(distances)
    if not len(relative) or not relative.any():
        return None
    scale = relative.sum() / np.square(relative).sum()
    # Pairs of one source hang together: the error is that of means by source.
    parts = np.array([np.square(scale * a / b - 1).mean() for a, b in zip(lengths, distances, strict=True) if len(a)])
    error = float(parts.std(ddof=1) / np.sqrt(len(parts))) if 1 < len(parts) < len(coordinates) else 0.0
    return Estimate(float(np.square(scale * relative - 1).mean()), error, len(relative))


@njit(cache=True, nogil=True)
def path_lengths(indptr, indices, source):  # type: ignore[no-untyped-def]
    """Return the edges on a shortest path from a node to each, int32 (n,); 0 to itself, -1 where there is none."""
    steps = np.full(len(indptr) - 1, -1, np.int32)
    queue = np.empty(len(indptr) - 1, np.int64)
    steps[source], queue[0] = 0, source
    first, end = 0, 1
    while first < end:
        node = queue[first]
        first += 1
        for e in range(indptr[node], indptr[node + 1]):
            other = indices[e]
            if steps[other] < 0:
                steps[other] = steps[node] + 1
                queue[end] = other
                end += 1
    return steps


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
