"""Labels as they stand in the columns of a table, batch by batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from tasks.arrays import Array
from tasks.ingest.database.label_configs import LabelType, columns_of
from tasks.ingest.ids.id_index import is_text
from tasks.ingest.labels import LabelKind, has_label, label_codes, wrong_label, wrong_labels
from tasks.ingest.tables.columns import is_list, numbers
from tasks.ingest.tables.intake import TableBatch

_SEVERAL = ("multilabel", "regression")


class LabelReader:
    """Reads the labels of one task."""

    def __init__(
        self, label: str | tuple[str, ...], task_type: LabelType, num_classes: int | None, *, keeps_missing: bool
    ) -> None:
        """`keeps_missing`: whether a row without any label stays, to be predicted; else it is a mistake."""
        self.columns = columns_of(label)
        self.task_type, self._given = task_type, num_classes
        self._keeps_missing = keeps_missing
        self._kind = LabelKind(task_type, num_classes or 2**31, len(self.columns))
        self._widths: dict[str, int] = {}

    def check_columns(self, names: list[str], files: str, option: str) -> None:
        """Raise DataError where a table has no such column."""
        for column in self.columns:
            if column not in names:
                near = did_you_mean(column, names)
                raise DataError(f"has no column {column!r}{near} ({option}); it has {listed(names)}", path=files)

    def read(self, batch: TableBatch) -> tuple[Array, Array]:
        """Return labels, float64 (n, width) with NaN for none, and which cannot be, bool (n,), which are gathered."""
        found = [self._column(batch, column) for column in self.columns]
        if any(values is None for values in found):
            return np.full((batch.num_rows, 1), np.nan), np.ones(batch.num_rows, np.bool_)
        values = np.concatenate([one for one in found if one is not None], axis=1)
        if values.shape[1] > 1 and self.task_type not in _SEVERAL:
            batch.wrong_column(
                self.columns[0],
                f"is a column of lists of {values.shape[1]}, and a {self.task_type} label one value; take task_type: "
                "multilabel or regression",
            )
            return np.full((batch.num_rows, 1), np.nan), np.ones(batch.num_rows, np.bool_)
        if not self._keeps_missing:
            words = (
                "the label is missing; leave such rows out, or keep them to be predicted (on_missing_label: predict)"
            )
            batch.wrong(np.isnan(values).all(1), self.columns[0], "the label is missing", words)
        wrong = wrong_labels(values, self._kind)
        start = 0
        for column, one in zip(self.columns, found, strict=True):
            assert one is not None
            end = start + one.shape[1]
            batch.wrong(wrong[:, start:end].any(1), column, "wrong label", self._words(values, wrong, start, end))
            start = end
        return values, np.asarray(wrong.any(1))

    def _words(self, values: Array, wrong: Array, start: int, end: int) -> Callable[[int], str]:
        """Return what says what is wrong with a row's labels of some columns."""
        some = slice(start, end)
        return lambda row: wrong_label(values[row, some][wrong[row, some]][0], self._kind)

    def _column(self, batch: TableBatch, column: str) -> Array | None:
        """Return one column, float64 (n, width); None where it is text."""
        if is_text(batch.column(column).type):
            batch.wrong_column(
                column, "is text; labels are numbers, and classes whole numbers from 0: give each class its number"
            )
            return None
        batch = _with_gaps(batch, column)
        values = numbers(batch, column, missing=True, width=self._widths.get(column), way_out="; leave the row out")
        values = values[:, None] if values.ndim == 1 else values
        if values.shape[1]:
            self._widths.setdefault(column, values.shape[1])
        return values

    def codes(self, values: Array) -> Array:
        """Return labels as the column `label`: int64 (n,) of classes, else float32 (n, width)."""
        return label_codes(values, self._kind)

    def num_classes(self, label: Array, files: str) -> int:
        """Return how many classes there are, 0 where there are none. Raises DataError where no row has a label."""
        known = has_label(label)
        if not known.any():
            raise DataError("has no label: all are empty", path=files, column=self.columns[0])
        if self.task_type == "multiclass":
            return self._given or max(1, int(label[known].max())) + 1
        return 2 if self.task_type == "binary" else 0


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
