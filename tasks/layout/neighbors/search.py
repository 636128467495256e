"""Nearest neighbours of vectors: by which method, and how many of them were found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import numpy as np
import torch

from tasks.arrays import Array, sample_rows
from tasks.layout.neighbors.clusters import nearest_in_clusters
from tasks.layout.neighbors.exact import nearest_rows
from tasks.layout.neighbors.refine import refine
from tasks.layout.neighbors.rows import Found, Metric, Rows

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


def nearest(
    vectors: Array, k: int, metric: Metric = "euclidean", method: Method = "auto", *, seed: int = 0, threads: int = 1
) -> Found:
    """Return the k nearest of each vector, without itself; of `clusters` most of them.

    Args:
        vectors: numbers (n, d), in memory or mapped; they are not copied whole.
        k: below n.
        metric: euclidean; cosine, by 1 - cosine; dot, by the negative product.
        method: exact, clusters, or auto (`chosen_method`).
        seed: of the clusters; one seed and one number of threads find the same.
        threads: how many work.

    Returns:
        rows int64 and distances float32, (n, k), the nearest first.

    Raises:
        DataError: a number that is not finite, or too large or small for float32 to square.
    """
    rows = Rows(vectors, metric)
    with torch_threads(threads):
        return search(rows, k, chosen_method(len(rows), metric, method), seed)[0]


def search(rows: Rows, k: int, method: Method, seed: int) -> tuple[Found, float | None]:
    """Return the same of rows, by `exact` or `clusters`, on torch's threads; and which share of them was found.

    What clusters find is refined round by round until 93 % are found, or hardly more come.

    Returns:
        neighbours, and the share, estimated at 100 rows; None where all were compared with all.
    """
    _check_k(k, len(rows) - 1)
    if method != "clusters":
        return nearest_rows(rows, rows, k, np.arange(len(rows))), None
    if rows.metric == "dot":
        raise ValueError("clusters find no nearest by the product; take the method exact, or the metric cosine")
    found = nearest_in_clusters(rows, k, seed)
    chosen = sample_rows(np.arange(len(rows)), _MEASURED_ROWS)
    own = chosen if rows.chosen is None else rows.chosen[chosen]
    true, _ = nearest_rows(Rows(rows.vectors, rows.metric, own), rows, k, chosen)
    share = _share_found(found, true, chosen)
    for _ in range(_ROUNDS):
        if share >= _ENOUGH:
            break
        before, found = share, refine(rows, found)
        share = _share_found(found, true, chosen)
        if share < before + _LEAST_GAIN:
            break
    return found, share


def _share_found(found: Found, true: Array, chosen: Array) -> float:
    hits = [len(np.intersect1d(a, b)) for a, b in zip(found[0][chosen], true, strict=True)]
    return sum(hits) / true.size


def nearest_among(new: Array, mapped: Array, k: int, metric: Metric = "euclidean", *, threads: int = 1) -> Found:
    """Return the k nearest mapped vectors of each new one, exactly: (m, d) among (n, d), k <= n. As `nearest`."""
    queries, rows = Rows(new, metric), Rows(mapped, metric)
    if new.shape[1] != mapped.shape[1]:
        raise ValueError(f"new vectors have {new.shape[1]} columns, and those of the map {mapped.shape[1]}")
    _check_k(k, len(rows))
    queries.mean()  # finds what is not finite
    with torch_threads(threads):
        return nearest_rows(queries, rows, k)


def _check_k(k: int, most: int) -> None:
    if not 1 <= k <= most:
        raise ValueError(f"k={k} neighbours: it has to be between 1 and {most}")


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch and kernels use so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
