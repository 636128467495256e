"""The transform that fills empty cells of users' tables, where `missing: mean` asks for it (dataset.nodes)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from configs.registry import TRANSFORMS
from tasks.arrays import Array
from tasks.preprocess.transforms.base import Column, ColumnTransform, State, summary


@TRANSFORMS.register("fill_mean")
class FillMean(ColumnTransform):
    """Put the mean of the training rows' values in the place of NaN; 0 where no training row has a value."""

    fits = True

    def select(self, columns: tuple[Column, ...]) -> tuple[str, ...]:
        """The columns that have gaps."""
        return tuple(column.name for column in columns if column.gaps)

    def partial(self, x: Array) -> State:
        """Count and sum of the values that are there."""
        return {"count": np.count_nonzero(~np.isnan(x), axis=0), "sum": np.nansum(x, axis=0, dtype=np.float64)}

    def fit(self, partials: list[State], column: Column) -> State:
        """Their mean over all training rows."""
        count = np.sum([np.zeros(column.dim), *(part["count"] for part in partials)], axis=0)
        total = np.sum([np.zeros(column.dim), *(part["sum"] for part in partials)], axis=0)
        return {"mean": total / np.maximum(count, 1)}

    def output(self, column: Column, state: State) -> Column:
        """The column without gaps."""
        return replace(column, gaps=False)

    def apply(self, x: Array, state: State) -> Array:
        """Fill."""
        return np.where(np.isnan(x), state["mean"], x).astype(np.float32)

    def describe(self, column: Column, state: State) -> dict[str, Any]:
        """The mean."""
        return {"mean": summary(state["mean"])}
