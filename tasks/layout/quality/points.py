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

from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from models.kernels.threads import run_parts
from tasks.arrays import Array, blocks
from tasks.layout.neighbors.nearest import nearest_rows
from tasks.layout.neighbors.rows import BLOCK_BYTES, SearchedRows, scores

_QUERIES = 512
_TOLERANCE = float(4 * np.finfo(np.float32).eps)
"""Of a squared distance, in parts of the two squared norms: the error of a float32 product."""
TRIPLETS = 5
_JITTER = 1e-9
_BLOCK = 1 << 14


def pair_distances(rows: SearchedRows, first: Array, second: Array) -> NDArray[np.float64]:
    """Return how far rows `first` (m,) are from rows `second` (m,): (m,), squared; for dot the negative product."""
    a, b = rows.read(first), rows.read(second)
    apart = -(a.double() * b).sum(1) if rows.metric == "dot" else (a.double() - b).square().sum(1)
    return apart.numpy()


def ranks(rows: SearchedRows, queries: Array, asked: Array) -> NDArray[np.int64]:
    """Return the ranks of rows among all by how far they are from a query: 1 is the nearest row's.

    Args:
        rows: n of them.
        queries: ids of rows, int64 (m,); a query is not counted itself.
        asked: ids of rows, int64 (m, a).
    """
    found, parts, mean = np.ones_like(asked, dtype=np.int64), list(blocks(len(queries), _QUERIES)), rows.mean()
    middle = torch.zeros_like(mean) if rows.metric == "dot" else mean

    def count(number: int) -> None:
        part = parts[number]
        own, x = queries[part], rows.read(queries[part]) - middle
        limits = np.stack([pair_distances(rows, own, column) for column in asked[part].T], axis=1).astype(np.float32)
        lengths = x.square().sum(1, keepdim=True)
        for block in blocks(len(rows), max(BLOCK_BYTES // (4 * max(len(x), x.shape[1])), 1)):
            others = rows.read(block) - middle
            distance = scores(rows.metric, x, others)
            if rows.metric != "dot":
                distance += lengths
            distance += _TOLERANCE * (lengths + others.square().sum(1))
            here = np.flatnonzero((own >= block.start) & (own < block.stop))
            distance[here, own[here] - block.start] = torch.inf
            _count(distance.numpy(), limits, found[part])

    run_parts(count, len(parts))
    return found


@njit(cache=True, nogil=True)
def _count(distances, limits, found):  # type: ignore[no-untyped-def]
    """Add to (m, a) how many distances of each row (m, b) are below each of its limits (m, a)."""
    for q in range(len(distances)):
        most = limits[q].max()
        for i in range(distances.shape[1]):
            if distances[q, i] < most:
                for j in range(limits.shape[1]):
                    found[q, j] += distances[q, i] < limits[q, j]


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
        kept = near != queries[:, None]
        kept[kept.all(axis=1), -1] = False  # of many equal points itself may not be among them
        others: NDArray[np.int64] = near[kept].reshape(len(queries), k).astype(np.int64)
        return others


def neighborhoods(layout: Map, vectors: SearchedRows, queries: Array, k: int) -> dict[str, Estimate]:
    """Return trustworthiness, continuity and neighbors_kept over the points drawn, int64 (m,): k below n / 2."""
    n = len(vectors)
    near_in_map = layout.nearest(queries, k)
    near_in_vectors, _ = nearest_rows(SearchedRows(vectors.vectors, vectors.metric, queries), vectors, k, queries)
    ranks_in_vectors = ranks(vectors, queries, near_in_map)
    ranks_in_map = ranks(SearchedRows(layout.coordinates, "euclidean"), queries, near_in_vectors)
    most = k * (2 * n - 3 * k - 1) / 2
    estimates = {
        name: Estimate.of(1 - np.maximum(ranks - k, 0).sum(axis=1) / most, n)
        for name, ranks in (("trustworthiness", ranks_in_vectors), ("continuity", ranks_in_map))
    }
    kept = (near_in_map[:, :, None] == near_in_vectors[:, None, :]).any(axis=2).mean(axis=1)
    return estimates | {"neighbors_kept": Estimate.of(kept, n)}


def knn_accuracy(layout: Map, codes: Array, queries: Array, k: int, population: int) -> Estimate:
    """Return the share of points (m,) whose code most of their k nearest have, the least of equals: int64 (n,)."""
    hits = []
    for part in blocks(len(queries), _BLOCK):
        near = codes[layout.nearest(queries[part], k)]
        votes = (near[:, :, None] == near[:, None, :]).sum(axis=2)
        most = np.where(votes == votes.max(axis=1, keepdims=True), near, codes.max() + 1).min(axis=1)
        hits.append(most == codes[queries[part]])
    return Estimate.of(np.concatenate(hits), population)


def triplets(layout: Map, vectors: SearchedRows, queries: Array, seed: int) -> Estimate:
    """Return the share of triplets, 5 with each point (m,), in whose order of distances map and vectors agree.

    A point and two others: which of them is nearer. Equal distances on either side count one half.
    """
    n = len(vectors)
    rng = np.random.default_rng(seed)
    plane = SearchedRows(layout.coordinates, "euclidean")
    agreed = []
    for part in blocks(len(queries), _BLOCK):
        first = np.repeat(np.asarray(queries[part], np.int64), TRIPLETS)
        # Two others that differ from the first and from each other.
        second = (first + rng.integers(1, n, len(first))) % n
        third = rng.integers(0, n - 2, len(first))
        for taken in (np.minimum(first, second), np.maximum(first, second)):
            third += third >= taken
        signs = [
            np.sign(pair_distances(rows, first, second) - pair_distances(rows, first, third))
            for rows in (vectors, plane)
        ]
        agreed.append((1 + signs[0] * signs[1]) / 2)
    by_point = np.concatenate(agreed).reshape(-1, TRIPLETS).mean(axis=1)
    # Also where all points are asked the triplets are drawn: as if from endlessly many.
    value, error, seen = Estimate.of(by_point, 1 << 62)
    return Estimate(value, error, seen * TRIPLETS)
