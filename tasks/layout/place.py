"""New points of a layout: placed among points that stay where they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.registry import MODELS
from models.kernels.layout.move_points import PointRows, move_points
from models.kernels.tables.row_tables import RowTable
from models.layout.configs import LayoutConfig
from tasks.arrays import Array
from tasks.layout.neighbors.rows import Metric, squares
from tasks.layout.neighbors.search import nearest_among
from tasks.layout.neighbors.weights import fuzzy_weights, perplexity_weights
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.walks.alias import draw_alike
from tasks.sampling.walks.edge_passes import EdgePasses

_SAMPLES = 500
"""Of each new point."""
_RATE = 0.5
"""Of the model's usual rate: new points begin near to where they belong.

Half of 5,000 images of Fashion-MNIST placed among the other half (November 2026): their classes by 10 neighbours in the
map are right for .752 (largevis), .739 (umap) and .754 (tsne), for .761, .762 and .770 where all are mapped at once,
and for about .71 where new points stay at their neighbours' mean.
"""
_NEIGHBORS = 15
_ASIDE = 1e-3
"""How far from their neighbours' mean new points begin, of the layout's standard deviation: no two in one place."""
_CHUNK = 1 << 14
_ORDER, _NEGATIVES = 1, 2
"""Purposes that keys are drawn for."""


def place_vectors(
    vectors: Array,
    mapped: Array,
    points: NDArray[np.float32],
    options: LayoutConfig,
    *,
    metric: Metric = "euclidean",
    seed: int = 0,
    threads: int = 1,
) -> NDArray[np.float32]:
    """Return points of new vectors in a layout of others: float32 (m, dim).

    Args:
        vectors: new ones (m, d).
        mapped: vectors that the layout is of (n, d).
        points: the layout, float32 (n, dim): it stays as it is.
        options: of the model that made the layout.
        metric: what its neighbours are near by.
        seed: of all draws.
        threads: that look for neighbours; points are placed by one, and the same from run to run.

    Raises ValueError: shapes that do not fit. DataError: vectors or points that are not finite.
    """
    if len(points) != len(mapped):
        raise ValueError(f"the layout has {len(points):,} points, and there are {len(mapped):,} vectors of it")
    if not len(vectors):
        return np.empty((0, options.dim), np.float32)
    k = min(_NEIGHBORS, len(mapped))
    found, distances = nearest_among(vectors, mapped, k, metric, threads=threads)
    if options.usual_weights == "fuzzy":
        weight = fuzzy_weights(distances)
    else:
        weight = perplexity_weights(squares(metric, distances), k / 3)
    indptr = np.arange(0, k * len(vectors) + 1, k)
    return place_points(points, indptr, found.reshape(-1), weight.reshape(-1), options, seed=seed)


def place_points(
    points: NDArray[np.float32],
    indptr: NDArray[np.int64],
    indices: Array,
    weight: NDArray[np.float32] | None,
    options: LayoutConfig,
    *,
    seed: int = 0,
    rate: float | None = None,
    samples: int = _SAMPLES,
) -> NDArray[np.float32]:
    """Return where new points lie among those of a layout, by its objective: float32 (m, dim).

    They begin at the weighted mean of their neighbours and do not see each other. One thread: equal bits from run to
    run.

    Args:
        points: the layout, float32 (n, dim): it stays as it is.
        indptr: int64 (m + 1,): neighbours of new point i are indices[indptr[i]:indptr[i + 1]].
        indices: rows of `points`, int32 or int64 (E,).
        weight: float32 (E,), how near neighbours are: those of one point count against each other; None: all alike.
        options: of the model that made the layout.
        seed: of all draws.
        rate: peak learning rate, from which it falls to 0; None: a part of the model's usual one.
        samples: of each new point, on average.

    Raises ValueError: shapes, neighbours, weights or points that are not fit.
    """
    options = options.settled(len(points), len(indices), is_mesh=None).options
    weight = np.ones(len(indices), np.float32) if weight is None else weight
    _check(points, indptr, indices, weight, options)
    count = len(indptr) - 1
    if not count:
        return np.empty((0, options.dim), np.float32)
    share = _shares(indptr, weight)
    fixed, moved = _table(points), RowTable.zeros(count, options.dim)
    _set_means(indptr, indices, share, points, moved.rows)
    random = np.random.default_rng(seed)
    moved.rows[:] += random.standard_normal(moved.rows.shape, np.float32) * np.float32(_ASIDE * points.std())
    passes = EdgePasses(indptr, indices, key=derive_key(seed, _ORDER), weight=share)
    peak = _RATE * options.usual_rate if rate is None else rate
    _move(moved, fixed, passes, options, seed, peak, samples * count)
    return moved.read()


def _move(
    moved: RowTable, fixed: RowTable, passes: EdgePasses, options: LayoutConfig, seed: int, peak: float, total: int
) -> None:
    """Take about `total` samples' steps."""
    model: Any = MODELS.get(options.name)
    objective = model.objective(options)
    if not getattr(options, "move_negatives", True):
        # There a point is drawn by its neighbours twice, as a head and as a tail, and pushed as a head only.
        objective = replace(objective, gamma=objective.gamma / 2)
    room = int(np.ceil(_CHUNK / passes.mean_share))
    heads, tails = np.empty(room, passes.heads.dtype), np.empty(room, passes.heads.dtype)
    own, others = (PointRows(table.values, table.stride, table.width) for table in (moved, fixed))
    chunks = max(1, round(total / _CHUNK))
    for chunk in range(chunks):
        found = passes.fill(chunk * room, room, heads, tails)
        negatives = np.empty((found, options.negatives), heads.dtype)
        draw_alike(fixed.num_rows, np.uint64(derive_key(seed, _NEGATIVES, chunk)), negatives.reshape(-1))
        move_points(
            own,
            others,
            heads[:found],
            tails[:found],
            negatives,
            objective,
            rate=peak * (1 - chunk / chunks),
            most=options.most,
            move_tails=False,
            move_negatives=False,
        )


def _check(
    points: NDArray[np.float32], indptr: Array, indices: Array, weight: NDArray[np.float32], options: LayoutConfig
) -> None:
    """Raise ValueError for what cannot be placed."""
    if points.ndim != 2 or points.shape[1] != options.dim or not len(points):
        raise ValueError(f"a layout has points (n, {options.dim}) and one at least, not {points.shape}")
    if not np.isfinite(points).all():
        raise ValueError(f"point {int(np.argmin(np.isfinite(points).all(1)))} of the layout is not finite")
    if len(indptr) < 1 or indptr[0] != 0 or indptr[-1] != len(indices) or len(weight) != len(indices):
        raise ValueError("indptr goes from 0 to the number of neighbours, and each of these has a weight")
    if len(indices) and not (indices.min() >= 0 and indices.max() < len(points)):
        raise ValueError(f"neighbours are rows of the layout, 0 to {len(points) - 1}")
    if len(weight) and not (weight.min() >= 0 and weight.max() < np.inf):
        raise ValueError("weights of neighbours must be finite and none below 0")
    first = _without_neighbours(indptr, weight)
    if first >= 0:
        raise ValueError(f"new point {first} has no neighbour of a weight above 0: there is nowhere to put it")


def _table(points: NDArray[np.float32]) -> RowTable:
    table = RowTable.zeros(*points.shape)
    table.write(slice(None), points)
    return table


@njit(cache=True, nogil=True)
def _without_neighbours(indptr, weight):  # type: ignore[no-untyped-def]
    """Return the first new point without a weight above 0; -1: there is none."""
    for i in range(len(indptr) - 1):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += weight[e]
        if not total > 0:
            return i
    return -1


@njit(cache=True, nogil=True)
def _shares(indptr, weight):  # type: ignore[no-untyped-def]
    """Return weights that add up to 1 for each new point: all of them get as many samples."""
    shares = np.empty(len(weight), np.float32)
    for i in range(len(indptr) - 1):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += weight[e]
        for e in range(indptr[i], indptr[i + 1]):
            shares[e] = weight[e] / total
    return shares


@njit(cache=True, nogil=True)
def _set_means(indptr, indices, share, points, means):  # type: ignore[no-untyped-def]
    """Set means (m, dim), which are 0, to those of the neighbours' points."""
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            for axis in range(points.shape[1]):
                means[i, axis] += share[e] * points[indices[e], axis]
