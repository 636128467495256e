"""Nearest neighbours of vectors: by which method, and how many of them were found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch

from tasks.arrays import Array, sample_rows
from tasks.layout.neighbors.nearest import nearest_in_clusters, nearest_rows
from tasks.layout.neighbors.refine import refine
from tasks.layout.neighbors.rows import Metric, NeighborLists, SearchedRows

Method = Literal["auto", "exact", "clusters"]
EXACT_ROWS = 10_000
"""Up to so many rows all are compared with all."""
_MEASURED_ROWS = 100
_ROUNDS, _ENOUGH, _LEAST_GAIN = 8, 0.93, 0.01
"""Layouts of Fashion-MNIST are equally trustworthy with 94 % of the neighbours and with all."""


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
