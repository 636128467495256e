"""Labels as the tables hold them: int64 classes (-1: none), or float32 columns (NaN: none)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.stage import StageContext
from tasks.storage.manifests import TaskType

NO_LABEL = (-100, -1)
"""What stands for no label beside classes from 0: torch's `ignore_index`, and what most graph data sets write."""
ANY_CLASSES = 2**31
"""In the place of how many classes there are, where the labels alone tell."""
_MAX_CLASSES = 1 << 20  # a model has a row of weights for each
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class LabelKind:
    """What a label is."""

    task_type: TaskType
    num_classes: int
    num_tasks: int

    @property
    def width(self) -> int:
        """Columns of the source."""
        return 1 if self.task_type == "multiclass" else self.num_tasks


def usual_metric(task_type: str) -> str:
    """Return the metric that a kind of label is judged by where nobody names another."""
    usual = {
        "multiclass": "accuracy",
        "regression": "rmse",
        "link": "hits@50",
        "triple": "mrr",
        "ranking": "map@10",
        "layout": "graph_neighbors_kept",
    }
    return usual.get(task_type, "rocauc")


def wrong_labels(values: Array, kind: LabelKind) -> Array:
    """Return which labels (NaN: none) are none of the kind, bool of the values' shape."""
    if kind.task_type == "regression":
        return np.abs(values) > _FLOAT32_MAX
    limit = kind.num_classes if kind.task_type == "multiclass" else 2
    return ~np.isnan(values) & ((values < 0) | (values >= limit) | (values != np.floor(values)))


def wrong_label(value: float, kind: LabelKind) -> str:
    """Say what is wrong with such a label."""
    if kind.task_type == "regression":
        return f"label {value:g} does not fit float32"
    limit = kind.num_classes if kind.task_type == "multiclass" else 2
    none = "; where there is no label, leave the cell empty (NaN)" if value < 0 else ""
    if limit == ANY_CLASSES:
        return f"label {value:g} is no class, which is a whole number from 0{none}"
    return f"label {value:g} is not {f'0..{limit - 1}' if limit > 2 else '0 or 1'}{none}"


def count_no_label(classes: list[int]) -> int:
    """Return how many of the classes, ascending, are `NO_LABEL`: they are below all others, which count from 0."""
    leading = next((place for place, value in enumerate(classes) if value not in NO_LABEL), len(classes))
    return leading if classes[leading:][:1] >= [0] or leading == len(classes) else 0


def label_codes(values: Array, kind: LabelKind) -> Array:
    """Return (n, width) float64, none of which is wrong, as the column `label`.

    Multiclass: int64 (n,), -1 for none. Others: float32 (n, width), NaN for none.
    """
    if kind.task_type == "multiclass":
        return np.where(np.isnan(values), -1, values)[:, 0].astype(np.int64)
    return values.astype(np.float32)


def to_labels(values: Array, kind: LabelKind, path: object, first_row: int = 0, column: object = None) -> Array:
    """Return (n, width) float64, NaN (of classes `NO_LABEL` too) for none, as the column `label` (see `label_codes`).

    Raises DataError: a class out of range, a binary label that is neither 0 nor 1, a number beyond float32.
    """
    if kind.task_type != "regression":
        values = np.where(np.isin(values, NO_LABEL), np.nan, values)
    wrong = wrong_labels(values, kind)
    if wrong.any():
        row, at = (int(x[0]) for x in np.nonzero(wrong))
        message, place = wrong_label(values[row, at], kind), at if column is None else column
        raise DataError(message, path=path, row=first_row + row, column=place)
    return label_codes(values, kind)


def has_label(labels: Array) -> Array:
    """Return whether each row of a `label` column holds any label, bool (n,)."""
    return np.asarray(labels >= 0 if labels.ndim == 1 else ~np.isnan(labels).all(axis=1))


def say_unlabelled(labelled: Array, what: str, context: StageContext) -> None:
    """Say how many nodes or graphs have no label; `labelled`: bool (n,)."""
    without = len(labelled) - int(np.count_nonzero(labelled))
    if without:
        context.message(f"{without:,} of {len(labelled):,} {what}s have no label")


def check_labelled(
    labelled: Array, ids: Array, split: str, what: str, path: object, name: Callable[[int], Any] = int
) -> None:
    """Raise DataError where a node or graph of a split has no label; `name` says what its owner calls it."""
    without = np.flatnonzero(~labelled[ids])
    if len(without):
        raise DataError(
            f"{len(without):,} of {len(ids):,} {what}s of the {split} split have no label, such as {what} "
            f"{name(int(ids[without[0]]))!r}",
            path=path,
        )


def number_labels(
    values: Array, task_type: TaskType | None, place: str, *, of_amounts: str
) -> tuple[TaskType, int, Array]:
    """Return the kind of labels, how many classes they have, and the column `label` (see `label_codes`).

    `values`: float64 (n, width), NaN (of classes -1 and -100 too) for none; `task_type`: None: what the numbers look
    like; `of_amounts`: what to do where they are amounts, for messages.

    Raises DataError: they are none of the kind, or of one class alone.
    """
    kind = task_type or _kind_of_label(values, place, of_amounts)
    if kind in ("multiclass", "binary") and values.shape[1] != 1:
        raise DataError(f"has {values.shape[1]} columns; a {kind} label has one", path=place)
    largest = float(np.nan_to_num(values, nan=-1).max(initial=-1))
    if kind == "multiclass" and not 1 <= largest < _MAX_CLASSES:
        row = int(np.nanargmax(values[:, 0])) if largest >= 0 else None
        message = f"the largest class is {largest:.0f}; 1 to {_MAX_CLASSES:,} classes are possible"
        raise DataError(message, path=place, row=row)
    classes = int(largest) + 1 if kind == "multiclass" else 0 if kind == "regression" else 2
    label = to_labels(values, LabelKind(kind, classes, values.shape[1]), place)
    if kind == "binary" and not (label == 0).any():
        there = ", ".join(f"{value:g}" for value in np.unique(values[~np.isnan(values)]))
        raise DataError(f"holds {there} alone; the two classes are 0 and 1 (-1 and -100: no label)", path=place)
    return kind, classes, label


def _kind_of_label(values: Array, place: str, of_amounts: str) -> TaskType:
    """Return the kind of label that numbers look like. Raises DataError for whole numbers below 0 that are no class."""
    none = np.isnan(values) | np.isin(values, NO_LABEL)
    labels = values[~none]
    if (labels != np.floor(labels)).any():
        return "regression"
    several = values.shape[1] > 1 and not np.isin(labels, (0, 1)).all()
    below = (values < 0) & (~none | several)
    if below.any():
        row, column = np.argwhere(below)[0].tolist()
        raise DataError(
            f"label {values[row, column]:g} is below 0 ({int(below.any(1).sum()):,} such rows): classes count from 0, "
            f"and -1, -100 and NaN stand for no label; {of_amounts}",
            path=place,
            row=row,
            column=column,
        )
    if values.shape[1] > 1:
        return "regression" if several else "multilabel"
    return "binary" if labels.size and labels.max() == 1 else "multiclass"
