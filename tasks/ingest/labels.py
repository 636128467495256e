"""Labels as the tables hold them: int64 classes (-1: none), or float32 columns (NaN: none)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from tasks.manifests import TaskType

Array = NDArray[Any]


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


def to_labels(values: Array, kind: LabelKind, path: object, first_row: int = 0, column: object = None) -> Array:
    """Return (n, width) float64, NaN where there is no label, as the column `label`.

    Multiclass: int64 (n,), -1 for none. Others: float32 (n, width), NaN for none.

    Raises:
        DataError: a class out of range, or a binary label that is neither 0 nor 1.
    """
    none = np.isnan(values)
    if kind.task_type == "regression":
        return values.astype(np.float32)
    limit = kind.num_classes if kind.task_type == "multiclass" else 2
    wrong = ~none & ((values < 0) | (values >= limit) | (values != np.floor(values)))
    if wrong.any():
        row, at = (int(x[0]) for x in np.nonzero(wrong))
        known = f"0..{limit - 1}" if limit > 2 else "0 or 1"
        raise DataError(
            f"label {values[row, at]:g} is not {known}",
            path=path,
            row=first_row + row,
            column=at if column is None else column,
        )
    if kind.task_type == "multiclass":
        return np.where(none, -1, values)[:, 0].astype(np.int64)
    return values.astype(np.float32)


def has_label(labels: Array) -> Array:
    """Return whether each row of a `label` column holds any label, bool (n,)."""
    return np.asarray(labels >= 0 if labels.ndim == 1 else ~np.isnan(labels).all(axis=1))


def check_labelled(labelled: Array, ids: Array, split: str, what: str, path: object) -> None:
    """Raise DataError where a node or graph of a split has no label."""
    without = np.flatnonzero(~labelled[ids])
    if len(without):
        raise DataError(
            f"{len(without):,} of {len(ids):,} {what}s of the {split} split have no label, such as {what} "
            f"{int(ids[without[0]])}",
            path=path,
        )
