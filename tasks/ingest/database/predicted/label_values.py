"""Labels as they stand in the columns of a table, batch by batch: of one task, or of several by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from tasks.arrays import Array
from tasks.ingest.database.predicted.configs import (
    MOST_CLASSES,
    LabelTableConfig,
    LabelType,
    NamedLabelConfig,
    PredictConfig,
    TaskOptions,
    columns_of,
)
from tasks.ingest.labels import ANY_CLASSES, LabelKind, has_label, label_codes, usual_metric, wrong_label, wrong_labels
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import is_list, numbers
from tasks.ingest.tables.intake import truths
from tasks.readers.columns import is_text
from tasks.storage.manifests import TaskHead, TaskType

_SEVERAL = ("multilabel", "regression")


class LabelFacts(NamedTuple):
    """What labels are."""

    task_type: TaskType
    num_classes: int
    heads: tuple[TaskHead, ...] = ()


def head_of(name: str, task_type: TaskType, options: TaskOptions, num_classes: int, num_tasks: int = 1) -> TaskHead:
    """Return one of several tasks."""
    return TaskHead(
        name=name,
        task_type=task_type,
        num_classes=num_classes,
        num_tasks=num_tasks,
        metric=options.metric or usual_metric(task_type),
        weight=options.weight,
    )


class LabelReader:
    """Reads the labels of one task, or of several, which stand side by side: classes as numbers, NaN for none."""

    def __init__(self, options: LabelTableConfig | PredictConfig) -> None:
        self._several: Mapping[str, NamedLabelConfig] = options.label if isinstance(options.label, Mapping) else {}
        self._keeps_missing = options.on_missing_label == "predict"
        self._tasks = [
            _TaskLabels(one.label, one.task_type, one.num_classes)  # type: ignore[arg-type] # one label each
            for one in (self._several.values() or [options])
        ]
        self._widths = [1] * len(self._tasks)
        self.columns = tuple(dict.fromkeys(column for one in self._tasks for column in one.columns))

    def read(self, batch: TableBatch) -> tuple[Array, Array]:
        """Return labels, float64 (n, width) with NaN for none, and which cannot be, bool (n,), which are gathered."""
        parts = [one.read(batch) for one in self._tasks]
        self._widths = [values.shape[1] for values, _ in parts]
        values = np.concatenate([values for values, _ in parts], axis=1)
        wrong = np.logical_or.reduce([wrong for _, wrong in parts])
        if not self._keeps_missing:
            words = (
                "the label is missing; leave such rows out, or keep them to be predicted (on_missing_label: predict)"
            )
            batch.wrong(np.isnan(values).all(1) & ~wrong, self.columns[0], "the label is missing", words)
        return values, wrong

    def codes(self, values: Array) -> Array:
        """Return labels as the column `label`: int64 (n,) of classes of one task, else float32 (n, width)."""
        return values.astype(np.float32) if self._several else self._tasks[0].codes(values)

    def kind(self, label: Array, files: str) -> LabelFacts:
        """Return what the labels are. Raises DataError where a task has none."""
        if not self._several:
            return self._tasks[0].kind(label, files)
        heads, start = [], 0
        for (name, one), task, width in zip(self._several.items(), self._tasks, self._widths, strict=True):
            columns = label[:, start : start + width]
            facts = task.kind(task.codes(columns.astype(np.float64)), files)
            heads.append(head_of(name, facts.task_type, one, facts.num_classes, width))
            start += width
        return LabelFacts("several", 0, tuple(heads))


class _TaskLabels:
    def __init__(self, label: str | tuple[str, ...], task_type: LabelType, num_classes: int | None) -> None:
        self.columns = columns_of(label)
        self.task_type, self._given = task_type, num_classes
        self._kind = LabelKind(task_type, num_classes or ANY_CLASSES, len(self.columns))
        self._widths: dict[str, int] = {}

    def read(self, batch: TableBatch) -> tuple[Array, Array]:
        """Return labels, float64 (n, width) with NaN for none, and which cannot be, bool (n,), which are gathered."""
        parts = [self._column(batch, column) for column in self.columns]
        values = np.concatenate(parts, axis=1)
        if values.shape[1] > 1 and self.task_type not in _SEVERAL:
            batch.wrong_column(
                self.columns[0],
                f"is a column of lists of {values.shape[1]}, and a {self.task_type} label one value; take task_type: "
                "multilabel or regression",
            )
            return np.full((batch.num_rows, 1), np.nan), np.ones(batch.num_rows, np.bool_)
        wrong = wrong_labels(values, self._kind)
        start = 0
        for column, one in zip(self.columns, parts, strict=True):
            which = wrong[:, start : start + one.shape[1]]
            start += one.shape[1]

            def message(row: int, one: Array = one, which: Array = which) -> str:
                return wrong_label(one[row][which[row]][0], self._kind)

            batch.wrong(which.any(1), column, "wrong label", message)
        return values, np.asarray(wrong.any(1))

    def _column(self, batch: TableBatch, column: str) -> Array:
        """Return one column, float64 (n, width)."""
        cells = batch.column(column)
        if is_text(cells.type) and not truths(cells)[1].any():
            words = "is text; labels are numbers, and classes whole numbers from 0: give each class its number"
            batch.wrong_column(column, words)
            return np.zeros((batch.num_rows, 1))
        batch = _with_gaps(batch, column)
        values = numbers(batch, column, missing=True, width=self._widths.get(column), way_out="; leave the row out")
        values = values[:, None] if values.ndim == 1 else values
        if values.shape[1]:
            self._widths.setdefault(column, values.shape[1])
        return values

    def codes(self, values: Array) -> Array:
        """Return labels as the column `label`: int64 (n,) of classes, else float32 (n, width)."""
        return label_codes(values, self._kind)

    def kind(self, label: Array, files: str) -> LabelFacts:
        labelled = has_label(label)
        if not labelled.any():
            raise DataError("has no label: all are empty", path=files, column=self.columns[0])
        if self.task_type == "multiclass":
            largest = int(label[labelled].max())
            if largest >= MOST_CLASSES:
                raise DataError(
                    f"has the label {largest:,}: classes are whole numbers from 0, and {MOST_CLASSES:,} at most; "
                    "number them anew",
                    path=files,
                    column=self.columns[0],
                )
            return LabelFacts("multiclass", self._given or max(1, largest) + 1)
        return LabelFacts(self.task_type, 2 if self.task_type == "binary" else 0)


def _with_gaps(batch: TableBatch, column: str) -> TableBatch:
    """Return a batch in which NaN stands for empty values of a column of lists: of labels they are not known."""
    lists = batch.column(column)
    if not is_list(lists.type):
        return batch
    kind = lists.type.value_type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return batch  # what is wrong with it is said later
    place = batch.data.schema.get_field_index(column)
    whole = lists.take(pa.array(np.arange(len(lists)))).cast(pa.list_(pa.float64()))  # its values begin at 0
    values = compute.fill_null(whole.values, np.nan)
    filled = pa.ListArray.from_arrays(whole.offsets, values, mask=whole.is_null())
    return replace(batch, data=batch.data.set_column(place, column, filled))
