"""Exact nearest neighbours and ranks of some query rows among all rows, in one pass over the rows.

Rows are read block after block, so they may be a memory map; memory is that of a block of them and of its distances to
the queries. Distances are products of float32 matrices about the rows' mean. Two that float32 cannot tell apart count
as equal, and equal ones are not farther than each other: ranks of many equal rows say nothing against a layout.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from tasks.arrays import Array, blocks
from tasks.layout.neighbors.rows import Metric

_BLOCK_BYTES = 8 << 20
_QUERIES, _ROWS = 256, 1024
"""At most in a product of matrices: a megabyte, which stays in the second-level cache while it is looked at."""
_MEAN_ROWS = 10_000
_TOLERANCE = np.float32(4 * np.finfo(np.float32).eps)
"""Of a squared distance, in parts of the two squared norms: the error of a float32 product."""


class Space(NamedTuple):
    """Rows and how far apart they are."""

    rows: Array
    """Float (n, d), float16 to float64; may be a memory map."""
    metric: Metric
    center: NDArray[np.float64]
    """Float64 (d,): subtracted before distances are taken; zeros where that would change their order."""

    @classmethod
    def of(cls, rows: Array, metric: Metric) -> Space:
        """Take the mean of at most 10,000 rows as the center of Euclidean distances."""
        center = np.zeros(rows.shape[1])
        if metric == "euclidean":
            center = np.asarray(rows[:: max(len(rows) // _MEAN_ROWS, 1)], np.float64).mean(axis=0)
        return cls(rows, metric, center)

    def read(self, at: slice | Array) -> NDArray[np.float32]:
        """Return these rows as distances need them: centered, or of length 1 for `cosine`."""
        rows = np.asarray(self.rows[at], np.float32) - self.center.astype(np.float32)
        if self.metric == "cosine":
            length = np.linalg.norm(rows, axis=1, keepdims=True)
            rows = np.divide(rows, length, out=np.zeros_like(rows), where=length > 0)
        return np.ascontiguousarray(rows)

    def pair_distances(self, first: Array, second: Array) -> NDArray[np.float64]:
        """Return distances (m,) of rows `first` (m,) from rows `second` (m,)."""
        a, b = self.read(first), self.read(second)
        if self.metric == "dot":
            return -np.einsum("nd,nd->n", a, b, dtype=np.float64)
        return _squares(a - b).astype(np.float64)


class RankLists(NamedTuple):
    """What is known of m queries so far."""

    limits: Array
    """float32 (m, a), ascending: distances whose ranks are asked for."""
    closer: Array
    """int64 (m, a + 1): how many rows are first closer than limit i."""
    near: Array
    """float32 (m, k), ascending: distances of the nearest rows."""
    ids: Array
    """int64 (m, k): those rows."""


def nearest_and_ranks(
    space: Space, queries: Array, asked: Array, num_nearest: int, threads: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the nearest rows of each query, and the ranks of the rows that are asked for.

    Args:
        space: n rows.
        queries: ids of rows, int64 (m,); a query is no neighbour of itself.
        asked: ids of rows, int64 (m, a).
        num_nearest: at most n - 1.
        threads: how many work side by side; they change no bit of the result.

    Returns:
        Ids int64 (m, num_nearest), the nearest first, and ranks int64 (m, a): 1 is the nearest row's.
    """
    count, dim = space.rows.shape
    query_rows = space.read(queries)
    limits = np.stack([space.pair_distances(queries, asked[:, i]) for i in range(asked.shape[1])], axis=1)
    order = np.argsort(limits, axis=1, kind="stable")
    lists = RankLists(
        limits=np.take_along_axis(limits, order, axis=1).astype(np.float32),
        closer=np.zeros((len(queries), asked.shape[1] + 1), np.int64),
        near=np.full((len(queries), num_nearest), np.inf, np.float32),
        ids=np.full((len(queries), num_nearest), -1, np.int64),
    )
    is_dot = space.metric == "dot"
    size = min(max(_BLOCK_BYTES // (4 * dim), 1), _ROWS * 64)
    with threadpool_limits(1), ThreadPoolExecutor(threads) as pool:
        for block in blocks(count, size):
            rows = space.read(block)
            squares = _squares(rows)

            def work(part: slice, rows: Array = rows, squares: Array = squares, first: int = block.start) -> None:
                mine = query_rows[part]
                lengths, of_part = _squares(mine), RankLists._make(array[part] for array in lists)
                for at in blocks(len(rows), _ROWS):
                    products = mine @ rows[at].T
                    scan(products, is_dot, first + at.start, queries[part], lengths, squares[at], of_part)

            for done in [pool.submit(work, part) for part in blocks(len(queries), _QUERIES)]:
                done.result()
    ranks = np.empty_like(asked, dtype=np.int64)
    np.put_along_axis(ranks, order, np.cumsum(lists.closer[:, :-1], axis=1) + 1, axis=1)
    return lists.ids, ranks


def _squares(rows: Array) -> NDArray[np.float32]:
    return np.einsum("nd,nd->n", rows, rows)


@njit(cache=True, nogil=True)
def scan(products, is_dot, first, queries, lengths, squares, lists):  # type: ignore[no-untyped-def]
    """Take the distances of rows `first` on into the nearest ones and into the counts between the limits.

    Distances are squared, or minus the product where `is_dot`.

    Args:
        products: of queries and rows, float32 (m, b).
        is_dot: whether the product alone is looked at.
        first: id of the first of the b rows.
        queries: int64 (m,).
        lengths: squared norms of queries, float32 (m,); `squares` those of the rows (b,).
        squares: likewise.
        lists: of the queries; changed.
    """
    limits, closer, near, ids = lists
    num_limits, k = limits.shape[1], near.shape[1]
    factor, share = (np.float32(-1), np.float32(0)) if is_dot else (np.float32(-2), np.float32(1))
    candidates = np.empty(products.shape[1], np.int64)
    for q in range(len(products)):
        most = limits[q, num_limits - 1] if num_limits > 0 else -np.float32(np.inf)
        worst = near[q, k - 1] if k > 0 else -np.float32(np.inf)
        bound, length = max(most, worst), share * lengths[q]
        count = 0
        for i in range(products.shape[1]):  # without a branch: few are below the bound, where is hard to foresee
            candidates[count] = i
            count += factor * products[q, i] + share * squares[i] + length < bound
        for j in range(count):
            i = candidates[j]
            d = factor * products[q, i] + share * squares[i] + length
            if first + i == queries[q]:
                continue
            if d < worst:
                worst = _insert(near[q], ids[q], d, first + i)
            d += _TOLERANCE * (lengths[q] + squares[i])
            if d < most:
                low, high = 0, num_limits - 1  # the first limit above d
                while low < high:
                    middle = (low + high) // 2
                    if limits[q, middle] > d:
                        high = middle
                    else:
                        low = middle + 1
                closer[q, low] += 1


@njit(cache=True, nogil=True)
def _insert(near, ids, d, row):  # type: ignore[no-untyped-def]
    """Put a row into the ascending list, and return the new last distance."""
    at = len(near) - 1
    while at > 0 and near[at - 1] > d:
        near[at], ids[at] = near[at - 1], ids[at - 1]
        at -= 1
    near[at], ids[at] = d, row
    return near[len(near) - 1]
