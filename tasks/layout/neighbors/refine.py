"""Better neighbours from neighbours' neighbours, round by round.

Nearest-neighbour descent (Dong, Moses and Li, WWW 2011), each point for itself: in a round it looks at the near ones of
its near ones, in both directions, and all points see the lists of the round before.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.kernels.threads import even_rows, run_rows
from tasks.arrays import blocks
from tasks.layout.neighbors.rows import NeighborLists, SearchedRows

_NEAR = 12
"""Nearest ones of a point whose lists are looked at, and as many that have it among their nearest."""


def refine(rows: SearchedRows, neighbors: NeighborLists) -> NeighborLists:
    """Return neighbours (n, k) that are as near as those found or nearer, after one round.

    Args:
        rows: of the metric euclidean or cosine; float32 ones are read where they lie, others are copied.
        neighbors: rows and distances, as `search` returns them.
    """
    near, far = neighbors
    vectors = rows.vectors if rows.vectors.dtype == np.float32 else rows.vectors.astype(np.float32)
    place = np.arange(len(rows)) if rows.chosen is None else rows.chosen
    scale = np.ones(len(rows), np.float32)
    if rows.metric == "cosine":
        scale = _reciprocal_lengths(vectors, place, rows.block)
    squares = far * far if rows.metric == "euclidean" else 2 * far
    close = np.full((len(rows), 2 * _NEAR), -1, np.int64)
    _both_ways(near, min(_NEAR, near.shape[1]), close)
    better, new = near.copy(), squares.copy()
    run_rows(_look_around, even_rows(len(rows)), np.asarray(vectors), place, scale, close, better, new)
    distances = np.sqrt(new) if rows.metric == "euclidean" else new / 2
    return better, distances.astype(np.float32)


def _reciprocal_lengths(vectors: NDArray[np.float32], place: NDArray[np.int64], block: int) -> NDArray[np.float32]:
    """Return 1 / length of rows, 0 of zeros; the squares are of numbers divided by the largest."""
    reciprocal = np.zeros(len(place), np.float32)
    for part in blocks(len(place), block):
        some = np.asarray(vectors[place[part]], np.float64)
        length = np.sqrt((some * some).sum(1))
        reciprocal[part] = np.where(length > 0, 1 / np.maximum(length, 1e-300), 0)
    return reciprocal


@njit(cache=True, nogil=True)
def _both_ways(near, most, close):  # type: ignore[no-untyped-def]
    """Set the first of each point's nearest, and of those that have it among theirs, the nearest first: (n, 2 most)."""
    counts = np.zeros(len(near), np.int64)
    for i in range(len(near)):
        for a in range(most):
            close[i, a] = near[i, a]
    for a in range(most):
        for i in range(len(near)):
            j = near[i, a]
            if counts[j] < most:
                close[j, most + counts[j]] = i
                counts[j] += 1


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract", "nsz"})
def _square(vectors, a, b, scale_a, scale_b):  # type: ignore[no-untyped-def]
    total = np.float32(0)
    for c in range(vectors.shape[1]):
        d = vectors[a, c] * scale_a - vectors[b, c] * scale_b
        total += d * d
    return total


@njit(cache=True, nogil=True)
def _look_around(first, end, vectors, place, scale, close, near, far):  # type: ignore[no-untyped-def]
    """Put what is nearer than the last of a point's neighbours among them, in order; rows `first` to `end`."""
    k, seen = near.shape[1], np.full(len(near), -1, np.int64)
    for i in range(first, end):
        seen[i] = i
        for a in range(k):
            seen[near[i, a]] = i
        for j in close[i]:
            if j < 0:
                continue
            for other in close[j]:
                if other < 0 or seen[other] == i:
                    continue
                seen[other] = i
                square = _square(vectors, place[i], place[other], scale[i], scale[other])
                if square >= far[i, k - 1]:
                    continue
                at = k - 1
                while at > 0 and far[i, at - 1] > square:
                    far[i, at], near[i, at] = far[i, at - 1], near[i, at - 1]
                    at -= 1
                far[i, at], near[i, at] = square, other
