"""New points of a layout: placed among points that stay where they are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.registry import MODELS
from models.kernels.layout.move_points import PointRows, move_points
from models.kernels.tables.row_tables import RowTable
from models.layout.configs import LayoutConfig
from tasks.arrays import Array
from tasks.layout.neighbors.graph import fuzzy_weights, perplexity_weights
from tasks.layout.neighbors.rows import Metric, squares
from tasks.layout.neighbors.search import nearest_among
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.walks.alias import EdgePasses, draw_alike

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

    Raises ValueError: vectors of other widths. DataError: some that are not finite.
    """
    if not len(vectors):
        return np.empty((0, options.dim), np.float32)
    k = min(_NEIGHBORS, len(mapped))
    near, distances = nearest_among(vectors, mapped, k, metric, threads=threads)
    if options.usual_weights == "fuzzy":
        weight = fuzzy_weights(distances)
    else:
        weight = perplexity_weights(squares(metric, distances), k / 3)
    return place_points(points, near, weight, options, seed=seed)


def place_points(
    points: NDArray[np.float32], near: Array, weight: NDArray[np.float32], options: LayoutConfig, *, seed: int
) -> NDArray[np.float32]:
    """Return where new points lie among those of a layout, by its objective: float32 (m, dim).

    They begin at the weighted mean of their neighbours and do not see each other. One thread: equal bits from run to
    run.

    Args:
        points: the layout, float32 (n, dim): it stays as it is.
        near: rows of `points`, int32 or int64 (m, k): neighbours of each new point.
        weight: float32 (m, k), how near neighbours are: those of one point count against each other, one is above 0.
        options: of the model that made the layout.
        seed: of all draws.
    """
    options = options.settled(len(points), near.size, is_mesh=None).options
    share = (weight / weight.sum(1, dtype=np.float64, keepdims=True)).astype(np.float32)  # all get as many samples
    fixed, moved = RowTable.zeros(*points.shape), RowTable.zeros(len(near), options.dim)
    fixed.write(slice(None), points)
    aside = np.random.default_rng(seed).standard_normal(moved.rows.shape, np.float32)
    moved.rows[:] = np.einsum("mk,mkd->md", share, points[near]) + aside * np.float32(_ASIDE * points.std())
    indptr = np.arange(0, near.size + 1, near.shape[1])
    passes = EdgePasses(indptr, near.reshape(-1), key=derive_key(seed, _ORDER), weight=share.reshape(-1))
    _move(moved, fixed, passes, options, seed)
    return moved.read()


def _move(moved: RowTable, fixed: RowTable, passes: EdgePasses, options: LayoutConfig, seed: int) -> None:
    """Take the samples' steps, at a rate that falls to 0."""
    model: Any = MODELS.get(options.name)
    objective = model.objective(options)
    if not getattr(options, "move_negatives", True):
        # There a point is drawn by its neighbours twice, as a head and as a tail, and pushed as a head only.
        objective = replace(objective, gamma=objective.gamma / 2)
    room = int(np.ceil(_CHUNK / passes.mean_share))
    heads, tails = np.empty(room, passes.heads.dtype), np.empty(room, passes.heads.dtype)
    new, others = (PointRows(table.values, table.stride, table.width) for table in (moved, fixed))
    chunks = max(1, round(_SAMPLES * moved.num_rows / _CHUNK))
    for chunk in range(chunks):
        count = passes.fill(chunk * room, room, heads, tails)
        negatives = np.empty((count, options.negatives), heads.dtype)
        draw_alike(fixed.num_rows, np.uint64(derive_key(seed, _NEGATIVES, chunk)), negatives.reshape(-1))
        move_points(
            new,
            others,
            heads[:count],
            tails[:count],
            negatives,
            objective,
            rate=_RATE * options.usual_rate * (1 - chunk / chunks),
            most=options.most,
            move_tails=False,
            move_negatives=False,
        )
