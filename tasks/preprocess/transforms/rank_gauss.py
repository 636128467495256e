"""Transforms by quantiles of the training split: rank_gauss and bucket.

The quantiles of a large split are taken from a sketch: every shard leaves evenly spaced order statistics with the
number of rows that each stands for; all shards' points, sorted and weighted, are the sketch. With m points a shard the
rank of any value is off by at most 1/m (of the shard's rows, summed: of all rows).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtri

from configs.registry import TRANSFORMS
from tasks.arrays import Array
from tasks.preprocess.transforms.base import Column, ColumnTransform, State, numeric, summary
from tasks.preprocess.transforms.configs import BucketConfig, RankGaussConfig

_SKETCH_POINTS = 2048
_EDGE = 1e-7  # as scikit-learn's QuantileTransformer: values beyond the training range map to about ±5.2


def sketch(x: Array, points: int = _SKETCH_POINTS) -> State:
    """Return at most `points` order statistics of each column (points, dim), each standing for count / points rows."""
    ordered = np.sort(x, axis=0)
    if len(x) > points:
        ordered = ordered[np.linspace(0, len(x) - 1, points).round().astype(np.int64)]
    return {"points": np.ascontiguousarray(ordered), "count": len(x)}


def merge_sketches(parts: list[State], dim: int, resolution: int) -> Array:
    """Return `resolution` evenly spaced quantiles of each column (resolution, dim), smallest and largest included.

    A split without rows gives zeros.
    """
    parts = [part for part in parts if part["count"]]
    if not parts:
        return np.zeros((resolution, dim))
    points = np.concatenate([part["points"] for part in parts]).astype(np.float64)
    weight = np.concatenate([np.full(len(p["points"]), p["count"] / len(p["points"])) for p in parts])
    grid = np.linspace(0, 1, resolution)
    quantiles = np.empty((resolution, dim))
    for j in range(dim):
        order = np.argsort(points[:, j], kind="stable")
        # Rank of a point: the middle of the rows that it stands for, stretched so that the ends are 0 and 1.
        cumulated = np.cumsum(weight[order])
        rank = cumulated - weight[order] / 2
        span = rank[-1] - rank[0]
        quantiles[:, j] = np.interp(grid, (rank - rank[0]) / span if span > 0 else rank * 0, points[order, j])
    return quantiles


@TRANSFORMS.register("rank_gauss")
class RankGauss(ColumnTransform):
    """Normal scores: Phi^-1(rank of x among the training rows), each value of a column by itself.

    Ties get the middle of their ranks, values between two quantiles are interpolated, as in scikit-learn's
    QuantileTransformer(output_distribution="normal").
    """

    fits = True

    Config = RankGaussConfig

    def partial(self, x: Array) -> State:
        """Order statistics."""
        return sketch(x, max(_SKETCH_POINTS, 2 * self.config.num_quantiles))

    def fit(self, partials: list[State], column: Column) -> State:
        """Quantiles of the training rows."""
        return {"quantiles": merge_sketches(partials, column.dim, self.config.num_quantiles)}

    def apply(self, x: Array, state: State) -> Array:
        """Phi^-1 of the rank."""
        quantiles = state["quantiles"]
        grid = np.linspace(0, 1, len(quantiles))
        scores = np.empty(x.shape, np.float32)
        for j in range(x.shape[1]):
            q, values = quantiles[:, j], x[:, j].astype(np.float64)
            if q[0] == q[-1]:  # constant in the training split
                scores[:, j] = 0
                continue
            rank = (np.interp(values, q, grid) + 1 - np.interp(-values, -q[::-1], grid)) / 2
            scores[:, j] = ndtri(np.clip(rank, _EDGE, 1 - _EDGE))
        return scores

    def output(self, column: Column, state: State) -> Column:
        """The same column, in full precision."""
        return numeric(column)

    def describe(self, column: Column, state: State) -> dict[str, Any]:
        """Median."""
        return {"median": summary(state["quantiles"][len(state["quantiles"]) // 2])}


@TRANSFORMS.register("bucket")
class Bucket(ColumnTransform):
    """Cut numbers into ranges and keep the range's number as a category (feat_cat)."""

    fits = True

    Config = BucketConfig

    def partial(self, x: Array) -> State:
        """Order statistics; nothing where boundaries are given."""
        return {} if self.config.boundaries else sketch(x)

    def fit(self, partials: list[State], column: Column) -> State:
        """Boundaries of each value."""
        if self.config.boundaries:
            return {"boundaries": [np.asarray(self.config.boundaries, np.float64)] * column.dim}
        quantiles = merge_sketches(partials, column.dim, self.config.num_buckets + 1)[1:-1]
        return {"boundaries": [np.unique(quantiles[:, j]) for j in range(column.dim)]}

    def output(self, column: Column, state: State) -> Column:
        """Codes: one a range."""
        counts = tuple(len(boundaries) + 1 for boundaries in state["boundaries"])
        return Column(column.name, "categorical", column.dim, counts)

    def apply(self, x: Array, state: State) -> Array:
        """Number of the range."""
        codes = [np.searchsorted(b, x[:, j], side="right") for j, b in enumerate(state["boundaries"])]
        return np.stack(codes, 1).astype(np.int32)

    def describe(self, column: Column, state: State) -> dict[str, Any]:
        """Boundaries of the first value."""
        return {"boundaries": summary(state["boundaries"][0])}
