"""Transforms of categories: codes and one_hot."""

from __future__ import annotations

from typing import Any

import numpy as np

from configs.errors import RecipeError
from configs.registry import TRANSFORMS
from tasks.arrays import Array
from tasks.preprocess.transforms.base import Column, ColumnTransform, State, numeric
from tasks.preprocess.transforms.configs import CodesConfig, OneHotConfig

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

    Config = CodesConfig

    def output(self, column: Column, state: State) -> Column:
        return Column(column.name, "categorical", column.dim, tuple(len(values) + 1 for values in state["values"]))

    def apply(self, x: Array, state: State) -> Array:
        return look_up(x, state["values"])


@TRANSFORMS.register("one_hot")
class OneHot(_Vocabulary):
    """One 0/1 number for each category of the training split, and one for all others; numeric from then on."""

    Config = OneHotConfig

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
