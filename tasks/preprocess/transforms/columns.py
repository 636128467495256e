"""Transforms of columns: standardize, min_max, normalize_rows, log1p; fill_mean for empty cells; codes and one_hot."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from configs.errors import RecipeError
from configs.registry import TRANSFORMS
from tasks.arrays import Array, blocks
from tasks.preprocess.transforms.base import Column, ColumnTransform, State, numeric, summary

_CHUNK_ROWS = 1 << 16


@TRANSFORMS.register("standardize")
class Standardize(ColumnTransform):
    """Mean 0 and variance 1 on the training split: (x - mean) / std, each value of a column by itself.

    Shards' means and sums of squares merge by Chan, Golub, LeVeque ("Updating formulae and a pairwise algorithm for
    computing sample variances", 1979), so that no second pass is needed and large means cost no digits. A value that
    is constant in the training split becomes x - mean.
    """

    fits = True

    def partial(self, x: Array) -> State:
        parts = []
        for rows in blocks(len(x), _CHUNK_ROWS):
            x64 = x[rows].astype(np.float64)
            mean = x64.mean(0)
            parts.append({"count": len(x64), "mean": mean, "squares": ((x64 - mean) ** 2).sum(0)})
        return _merge_moments(parts, x.shape[1])

    def fit(self, partials: list[State], column: Column) -> State:
        merged = _merge_moments(partials, column.dim)
        mean, std = merged["mean"], np.sqrt(merged["squares"] / max(merged["count"], 1))
        # Rounding leaves a constant value with a tiny deviation: dividing by it would blow noise up.
        return {"mean": mean, "scale": np.where(std > 1e-7 * np.maximum(np.abs(mean), 1e-30), std, 1.0)}

    def apply(self, x: Array, state: State) -> Array:
        return ((x - state["mean"]) / state["scale"]).astype(np.float32)

    def describe(self, column: Column, state: State) -> dict[str, Any]:
        return {"mean": summary(state["mean"]), "scale": summary(state["scale"])}


def _merge_moments(parts: list[State], dim: int) -> State:
    """Combine counts, means and sums of squared deviations."""
    count, mean, squares = 0, np.zeros(dim), np.zeros(dim)
    for part in parts:
        total = count + part["count"]
        if not part["count"]:
            continue
        delta = part["mean"] - mean
        mean = mean + delta * (part["count"] / total)
        squares = squares + part["squares"] + delta**2 * (count * part["count"] / total)
        count = total
    return {"count": count, "mean": mean, "squares": squares}


@TRANSFORMS.register("min_max")
class MinMax(ColumnTransform):
    """Map the training split's range to 0..1: (x - min) / (max - min); other rows may fall outside unless clipped."""

    fits = True

    def partial(self, x: Array) -> State:
        return {"min": x.min(0, initial=np.inf).astype(np.float64), "max": x.max(0, initial=-np.inf).astype(np.float64)}

    def fit(self, partials: list[State], column: Column) -> State:
        none = np.full(column.dim, np.inf)
        low = np.min([none, *(part["min"] for part in partials)], axis=0)
        high = np.max([-none, *(part["max"] for part in partials)], axis=0)
        low, high = np.where(np.isfinite(low), low, 0.0), np.where(np.isfinite(high), high, 1.0)
        return {"min": low, "range": np.where(high > low, high - low, 1.0)}

    def apply(self, x: Array, state: State) -> Array:
        scaled = (x - state["min"]) / state["range"]
        return (np.clip(scaled, 0, 1) if self.config.clip else scaled).astype(np.float32)

    def describe(self, column: Column, state: State) -> dict[str, Any]:
        return {"min": summary(state["min"]), "max": summary(state["min"] + state["range"])}


@TRANSFORMS.register("normalize_rows")
class NormalizeRows(ColumnTransform):
    """x / ||x||: each node's row of a column to length 1 (bags of words, as Kipf and Welling); rows of zeros stay."""

    def apply(self, x: Array, state: State) -> Array:
        length = np.linalg.norm(x.astype(np.float64), ord=1 if self.config.norm == "l1" else 2, axis=1, keepdims=True)
        return (x / np.where(length > 0, length, 1.0)).astype(np.float32)


@TRANSFORMS.register("log1p")
class Log1p(ColumnTransform):
    """sign(x) · log(1 + |x|): tames counts and amounts; learns nothing."""

    def apply(self, x: Array, state: State) -> Array:
        return (np.sign(x) * np.log1p(np.abs(x))).astype(np.float32)


@TRANSFORMS.register("fill_mean")
class FillMean(ColumnTransform):
    """Put the mean of the training rows' values in the place of NaN; 0 where no training row has a value."""

    fits = True

    def select(self, columns: tuple[Column, ...]) -> tuple[str, ...]:
        """The columns that have gaps."""
        return tuple(column.name for column in columns if column.gaps)

    def partial(self, x: Array) -> State:
        return {"count": np.count_nonzero(~np.isnan(x), axis=0), "sum": np.nansum(x, axis=0, dtype=np.float64)}

    def fit(self, partials: list[State], column: Column) -> State:
        count = np.sum([np.zeros(column.dim), *(part["count"] for part in partials)], axis=0)
        total = np.sum([np.zeros(column.dim), *(part["sum"] for part in partials)], axis=0)
        return {"mean": total / np.maximum(count, 1)}

    def output(self, column: Column, state: State) -> Column:
        return replace(column, gaps=False)

    def apply(self, x: Array, state: State) -> Array:
        return np.where(np.isnan(x), state["mean"], x).astype(np.float32)

    def describe(self, column: Column, state: State) -> dict[str, Any]:
        return {"mean": summary(state["mean"])}


_LISTED = 20  # categories that a report shows


class _Vocabulary(ColumnTransform):
    """Learns which categories the training rows have."""

    fits = True
    takes = ("categorical", "raw", "numeric")

    def select(self, columns: tuple[Column, ...]) -> tuple[str, ...]:
        """All that are categories, unless columns are named: numbers only if asked for."""
        if self.config.columns:
            return super().select(columns)
        return tuple(column.name for column in columns if column.kind != "numeric")

    def partial(self, x: Array) -> State:
        values = [np.unique(_plain(x[:, j])) for j in range(x.shape[1])]
        for distinct in values:  # refused here already: a summary of floats would be as long as the shard
            self._refuse_many(len(distinct))
        return {"values": values}

    def fit(self, partials: list[State], column: Column) -> State:
        merged = []
        for j in range(column.dim):
            of_shards = [part["values"][j] for part in partials if len(part["values"][j])]
            merged.append(np.unique(np.concatenate(of_shards)) if of_shards else np.empty(0, np.int64))
            self._refuse_many(len(merged[-1]), column.name)
        return {"values": merged}

    def _refuse_many(self, count: int, column: str = "") -> None:
        limit = self.config.max_categories
        if count > limit:
            where = f" in column {column!r}" if column else ""
            raise RecipeError(
                f"preprocess.transforms: {self.config.name} found more than max_categories={limit} categories{where}; "
                "raise max_categories, or name other columns"
            )

    def describe(self, column: Column, state: State) -> dict[str, Any]:
        counts = [len(values) for values in state["values"]]
        shown = counts if len(counts) <= 8 else {"values": len(counts), "max": max(counts)}
        return {"categories": shown, "first": state["values"][0][:_LISTED].tolist()}


@TRANSFORMS.register("codes")
class Codes(_Vocabulary):
    """Number the categories that occur in the training split; all others share one code of their own, the last."""

    def output(self, column: Column, state: State) -> Column:
        return Column(column.name, "categorical", column.dim, tuple(len(values) + 1 for values in state["values"]))

    def apply(self, x: Array, state: State) -> Array:
        return look_up(x, state["values"])


@TRANSFORMS.register("one_hot")
class OneHot(_Vocabulary):
    """One 0/1 number for each category of the training split, and one for all others; numeric from then on."""

    def output(self, column: Column, state: State) -> Column:
        return numeric(column, sum(len(values) + 1 for values in state["values"]))

    def apply(self, x: Array, state: State) -> Array:
        codes = look_up(x, state["values"])
        widths = [len(values) + 1 for values in state["values"]]
        spread = np.zeros((len(x), sum(widths)), np.float32)
        for j, start in enumerate(np.cumsum([0, *widths[:-1]])):
            spread[np.arange(len(x)), start + codes[:, j]] = 1
        return spread


def look_up(x: Array, vocabularies: list[Array]) -> Array:
    """Return int32 codes (n, dim): position in the column's ascending vocabulary, its length for what is not there."""
    codes = np.zeros(x.shape, np.int32)
    for j, values in enumerate(vocabularies):
        if len(values):
            column = _plain(x[:, j])
            place = np.minimum(np.searchsorted(values, column), len(values) - 1)
            codes[:, j] = np.where(values[place] == column, place, len(values))
    return codes


def _plain(column: Array) -> Array:
    """Strings become fixed-width text, which is plain in a pickle."""
    return column.astype(np.str_) if column.dtype.hasobject else column
