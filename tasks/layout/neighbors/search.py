"""Nearest neighbours of vectors: by which method, how many of them were found, and better ones round by round.

A round is nearest-neighbour descent (Dong, Moses and Li, WWW 2011), each point for itself: it looks at the near ones of
its near ones, in both directions, and all points see the lists of the round before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from models.kernels.threads import even_rows, run_rows
from tasks.arrays import Array, blocks, sample_rows
from tasks.layout.neighbors.nearest import nearest_in_clusters, nearest_rows
from tasks.layout.neighbors.rows import Metric, NeighborLists, SearchedRows

Method = Literal["auto", "exact", "clusters"]
EXACT_ROWS = 10_000
"""Up to so many rows all are compared with all."""
_MEASURED_ROWS = 100
_ROUNDS, _ENOUGH, _LEAST_GAIN = 8, 0.93, 0.01
"""Layouts of Fashion-MNIST are equally trustworthy with 94 % of the neighbours and with all."""
_NEAR = 12
"""Nearest ones of a point whose lists are looked at, and as many that have it among their nearest."""


def chosen_method(num_rows: int, metric: Metric, method: Method) -> Method:
    """Return `exact` or `clusters` for `auto`: clusters beyond 10,000 rows, but not for products.

    Of products the long vectors are nearest to all, wherever these lie.
    """
    if method != "auto":
        return method
    return "exact" if num_rows <= EXACT_ROWS or metric == "dot" else "clusters"


def search(rows: SearchedRows, k: int, method: Method, seed: int) -> tuple[NeighborLists, float | None]:
    """Return the k nearest of each row, without itself, by `exact` or `clusters`, on torch's threads.

    What clusters find is refined round by round until 93 % are found, or hardly more come. One seed and one number of
    threads find the same.

    Returns:
        rows int64 and distances float32, (n, k), the nearest first; and which share of the nearest was found, estimated
        at 100 rows, None where all were compared with all.

    Raises:
        DataError: a number that is not finite, or too large or small for float32 to square.
    """
    if method != "clusters":
        return nearest_rows(rows, rows, k, np.arange(len(rows))), None
    if rows.metric == "dot":
        raise ValueError("clusters cannot be searched by the dot product; take the method exact, or the metric cosine")
    neighbors = nearest_in_clusters(rows, k, seed)
    chosen = sample_rows(np.arange(len(rows)), _MEASURED_ROWS)
    places = chosen if rows.chosen is None else rows.chosen[chosen]
    true, _ = nearest_rows(SearchedRows(rows.vectors, rows.metric, places), rows, k, chosen)

    def share_found(near: Array) -> float:
        return sum(len(np.intersect1d(a, b)) for a, b in zip(near[chosen], true, strict=True)) / true.size

    share = share_found(neighbors[0])
    for _ in range(_ROUNDS):
        if share >= _ENOUGH:
            break
        before, neighbors = share, refine(rows, neighbors)
        share = share_found(neighbors[0])
        if share < before + _LEAST_GAIN:
            break
    return neighbors, share


def nearest_among(
    new: Array, mapped: Array, k: int, metric: Metric = "euclidean", *, threads: int = 1
) -> NeighborLists:
    """Return the k nearest mapped vectors of each new one, exactly: (m, d) among (n, d), k <= n. As `search`."""
    queries, rows = SearchedRows(new, metric), SearchedRows(mapped, metric)
    if new.shape[1] != mapped.shape[1]:
        raise ValueError(f"new vectors have {new.shape[1]} columns, and those of the map {mapped.shape[1]}")
    queries.mean()  # finds what is not finite
    with torch_threads(threads):
        return nearest_rows(queries, rows, k)


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch and kernels use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
