"""How well a map of vectors keeps what is near in them, what is far, and labels.

| measure | what | source |
|---|---|---|
| trustworthiness | 1 minus the mean rank of what is near in the map only | Venna, Kaski: ICANN 2001, equation 1 |
| continuity | the same of what is near in the vectors only | there, equation 2 |
| neighbors_kept | share of a point's nearest vectors that are its nearest in the map too | Lee, Verleysen: 2009, Q_NX |
| knn_accuracy | share of points whose label is that of most of their nearest in the map | leave one out |
| triplets | share of random triplets in the same order of distances | Wang et al.: PaCMAP, JMLR 22, 2021, section 4 |

All are 1 at best. Ranks, with k neighbours of n points: 1 - 2 / (n k (2 n - 3 k - 1)) sum_i sum_j max(rank_ij - k, 0).

Neighbours and ranks of some query rows are exact, in one pass over all rows: block after block, so they may be a memory
map; memory is that of a block and of its distances to the queries. Distances are products of float32 matrices about the
rows' mean. Two that float32 cannot tell apart count as equal, and equal ones are not farther than each other: ranks of
many equal rows say nothing against a layout.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from threadpoolctl import threadpool_limits

from tasks.arrays import Array, blocks
from tasks.layout.neighbors.rows import Metric

_BLOCK_BYTES = 8 << 20
_QUERIES, _ROWS = 256, 1024
"""At most in a product of matrices: a megabyte, which stays in the second-level cache while it is looked at."""
_MEAN_ROWS = 10_000
_TOLERANCE = np.float32(4 * np.finfo(np.float32).eps)
"""Of a squared distance, in parts of the two squared norms: the error of a float32 product."""
TRIPLETS = 5
_JITTER = 1e-9
_BLOCK = 1 << 14


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


class Estimate(NamedTuple):
    """A mean over points that were drawn, or over all."""

    value: float
    error: float
    """Standard error of the drawing; 0: nothing was drawn."""
    seen: int
    """How many points, or edges, or pairs the mean is over."""

    @classmethod
    def of(cls, values: Array, population: int) -> Estimate:
        """Take the mean of values (m,), drawn without replacement from so many."""
        spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
        missed = max(1 - len(values) / max(population, 1), 0.0)
        return cls(float(np.mean(values)), spread * float(np.sqrt(missed / len(values))), len(values))


class Map:
    """Points in two or three dimensions, and their nearest ones."""

    def __init__(self, coordinates: Array, threads: int) -> None:
        """Take coordinates (n, 2 or 3). Equal ones are put apart by a billionth of the map's extent.

        A tree of many equal points would be searched in linear time; and which of them are nearest is then chance.
        """
        extent = float(np.ptp(coordinates, axis=0).max()) or 1.0
        noise = np.random.default_rng(0).random(coordinates.shape)
        self.coordinates = coordinates
        self._points = coordinates.astype(np.float64) + noise * (extent * _JITTER)
        self._tree = cKDTree(self._points, balanced_tree=False)
        self._threads = threads

    def nearest(self, queries: Array, k: int) -> NDArray[np.int64]:
        """Return the k nearest other points of points (m,), the nearest first: (m, k)."""
        _, near = self._tree.query(self._points[queries], k + 1, workers=self._threads)
        return without_itself(np.ascontiguousarray(near, np.int64), np.asarray(queries, np.int64))


@njit(cache=True, nogil=True)
def without_itself(near, queries):  # type: ignore[no-untyped-def]
    """Return found (m, k + 1) without the query itself, or without the last where that is not among them: (m, k)."""
    kept = np.empty((len(near), near.shape[1] - 1), np.int64)
    for q in range(len(near)):
        to = 0
        for i in range(near.shape[1]):
            if near[q, i] != queries[q] and to < kept.shape[1]:
                kept[q, to] = near[q, i]
                to += 1
    return kept


def neighborhoods(layout: Map, vectors: Space, queries: Array, k: int, threads: int = 1) -> dict[str, Estimate]:
    """Return trustworthiness, continuity and neighbors_kept over the points drawn, int64 (m,): k below n / 2."""
    n = len(vectors.rows)
    near_in_map = layout.nearest(queries, k)
    near_in_vectors, ranks_in_vectors = nearest_and_ranks(vectors, queries, near_in_map, k, threads)
    if (near_in_vectors < 0).any():
        raise ValueError("vectors hold numbers that are not finite: leave those rows out, or replace the numbers")
    plane = Space.of(layout.coordinates, "euclidean")
    _, ranks_in_map = nearest_and_ranks(plane, queries, near_in_vectors, 0, threads)
    most = k * (2 * n - 3 * k - 1) / 2
    estimates = {
        name: Estimate.of(1 - np.maximum(ranks - k, 0).sum(axis=1) / most, n)
        for name, ranks in (("trustworthiness", ranks_in_vectors), ("continuity", ranks_in_map))
    }
    kept = (near_in_map[:, :, None] == near_in_vectors[:, None, :]).any(axis=2).mean(axis=1)
    return estimates | {"neighbors_kept": Estimate.of(kept, n)}


def knn_accuracy(layout: Map, codes: Array, queries: Array, k: int, population: int) -> Estimate:
    """Return the share of points (m,) whose code most of their k nearest have, the least of equals: int64 (n,)."""
    hits = [
        vote_hits(codes[layout.nearest(queries[part], k)], codes[queries[part]])
        for part in blocks(len(queries), _BLOCK)
    ]
    return Estimate.of(np.concatenate(hits), population)


@njit(cache=True, nogil=True)
def vote_hits(near, code):  # type: ignore[no-untyped-def]
    """Return whether most of the codes near (m, k) are the own one (m,), the least code of equals: float64 (m,)."""
    hits = np.zeros(len(near))
    for q in range(len(near)):
        codes = np.sort(near[q])
        best, most, length = codes[0], 0, 0
        for i in range(len(codes)):
            length = length + 1 if i > 0 and codes[i] == codes[i - 1] else 1
            if length > most:
                best, most = codes[i], length
        hits[q] = best == code[q]
    return hits


def triplets(layout: Map, vectors: Space, queries: Array, seed: int) -> Estimate:
    """Return the share of triplets, 5 with each point (m,), in whose order of distances map and vectors agree.

    A point and two others: which of them is nearer. Equal distances on either side count one half.
    """
    n = len(vectors.rows)
    rng = np.random.default_rng(seed)
    plane = Space.of(layout.coordinates, "euclidean")
    agreed = []
    for part in blocks(len(queries), _BLOCK):
        first = np.repeat(np.asarray(queries[part], np.int64), TRIPLETS)
        # Two others that differ from the first and from each other.
        second = (first + rng.integers(1, n, len(first))) % n
        third = rng.integers(0, n - 2, len(first))
        for taken in (np.minimum(first, second), np.maximum(first, second)):
            third += third >= taken
        signs = [
            np.sign(space.pair_distances(first, second) - space.pair_distances(first, third))
            for space in (vectors, plane)
        ]
        agreed.append((1 + signs[0] * signs[1]) / 2)
    by_point = np.concatenate(agreed).reshape(-1, TRIPLETS).mean(axis=1)
    # Also where all points are asked the triplets are drawn: as if from endlessly many.
    value, error, seen = Estimate.of(by_point, 1 << 62)
    return Estimate(value, error, seen * TRIPLETS)
