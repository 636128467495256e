"""How well a map of vectors keeps what is near in them, what is far, and labels.

| measure | what | source |
|---|---|---|
| trustworthiness | 1 minus the mean rank of what is near in the map only | Venna, Kaski: ICANN 2001, equation 1 |
| continuity | the same of what is near in the vectors only | there, equation 2 |
| neighbors_kept | share of a point's nearest vectors that are its nearest in the map too | Lee, Verleysen: 2009, Q_NX |
| knn_accuracy | share of points whose label is that of most of their nearest in the map | leave one out |
| triplets | share of random triplets in the same order of distances | Wang et al.: PaCMAP, JMLR 22, 2021, section 4 |

All are 1 at best. Ranks, with k neighbours of n points: 1 - 2 / (n k (2 n - 3 k - 1)) sum_i sum_j max(rank_ij - k, 0).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from tasks.arrays import Array, blocks
from tasks.layout.quality.ranks import Space, nearest_and_ranks

TRIPLETS = 5
_JITTER = 1e-9
_BLOCK = 1 << 14


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
