"""Cells of users' tables as checked NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from configs.moments import TimeUnit
from tasks.ingest.id_index import IdIndex, is_text
from tasks.ingest.table_files import Batch, TableFiles
from tasks.manifests import FeatureColumn

Array = NDArray[Any]


def ids(batch: Batch, column: str) -> pa.Array:
    """Return ids without gaps: whole numbers >= 0 (int64) or texts. Raises DataError naming row and column."""
    values = batch.column(column)
    _refuse_nulls(batch, column, values, "the id is missing")
    if is_text(values.type):
        texts = values.cast(pa.string()) if pa.types.is_dictionary(values.type) else values
        empty = np.flatnonzero(np.asarray(compute.equal(texts, "")))
        if len(empty):
            raise batch.error("the id is missing", int(empty[0]), column)
        return texts
    if not pa.types.is_integer(values.type):
        raise batch.error(f"ids are whole numbers or texts, not {values.type}", 0, column)
    if pa.types.is_uint64(values.type):
        values = _to_int64(batch, column, values)
    values = values.cast(pa.int64())
    negative = np.flatnonzero(np.asarray(values) < 0)
    if len(negative):
        row = int(negative[0])
        raise batch.error(f"the id {values[row].as_py()} is negative", row, column)
    return values


def _to_int64(batch: Batch, column: str, values: pa.Array) -> pa.Array:
    large = np.flatnonzero(np.asarray(values) > np.iinfo(np.int64).max)
    if len(large):
        row = int(large[0])
        raise batch.error(f"the id {values[row].as_py()} does not fit int64; store ids as texts", row, column)
    return values


def _refuse_nulls(batch: Batch, column: str, values: pa.Array, message: str) -> None:
    if values.null_count:
        row = int(np.flatnonzero(np.asarray(compute.is_null(values)))[0])
        raise batch.error(message, row, column)


def numbers(batch: Batch, column: str, *, missing: bool = False) -> Array:
    """Return a column as float64, (n,) or (n, width) for lists. `missing` lets empty cells and NaN pass as NaN.

    Raises:
        DataError: text, an empty cell, NaN or Inf, or lists of different lengths.
    """
    values = batch.column(column)
    if not missing:
        _refuse_nulls(batch, column, values, "the cell is empty")
    if _is_list(values.type):
        _refuse_nulls(batch, column, values, "the cell is empty")
        flat, width = _flatten(batch, column, values)
        out = _as_float(batch, column, flat, max(1, width)).reshape(len(values), width)
    else:
        out = _as_float(batch, column, values, 1)
    wrong = np.isinf(out) if missing else ~np.isfinite(out)
    if wrong.any():
        row = int(np.nonzero(wrong)[0][0])
        raise batch.error(f"{out[wrong].flat[0]} is not a finite number", row, column)
    return out


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _flatten(batch: Batch, column: str, values: pa.Array) -> tuple[pa.Array, int]:
    if pa.types.is_fixed_size_list(values.type):
        return values.flatten(), int(values.type.list_size)
    lengths = np.asarray(compute.list_value_length(values))
    if len(lengths) == 0:
        return values.flatten(), 0
    ragged = np.flatnonzero(lengths != lengths[0])
    if len(ragged):
        row = int(ragged[0])
        raise batch.error(f"the list has {int(lengths[row])} values, the others have {int(lengths[0])}", row, column)
    return values.flatten(), int(lengths[0])


def _as_float(batch: Batch, column: str, values: pa.Array, width: int) -> Array:
    kind = values.type
    if is_text(kind):
        raise batch.error("is text; numbers are needed (texts can be categorical)", 0, column)
    if not (
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind) or pa.types.is_null(kind)
    ):
        raise batch.error(f"is {kind}; numbers are needed", 0, column)
    if values.null_count and width > 1:
        row = int(np.flatnonzero(np.asarray(compute.is_null(values)))[0]) // width
        raise batch.error("the list has an empty value", row, column)
    return np.array(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)


def time_unit(batch: Batch, column: str) -> TimeUnit:
    """Return what `times` makes of a column: seconds of dates and time stamps, else numbers of the user's own."""
    kind = batch.column(column).type
    return "seconds" if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else "number"


def times(batch: Batch, column: str) -> Array:
    """Return whole numbers as they are, dates and time stamps as seconds since 1970, int64 (n,). Raises DataError."""
    values = batch.column(column)
    _refuse_nulls(batch, column, values, "the time is missing")
    kind = values.type
    if time_unit(batch, column) == "seconds":
        return np.asarray(values.cast(pa.timestamp("s"), safe=False).cast(pa.int64()))
    if pa.types.is_integer(kind):
        return np.asarray(values.cast(pa.int64()))
    out = numbers(batch, column)
    wrong = np.flatnonzero(out != np.floor(out))
    if len(wrong):
        row = int(wrong[0])
        raise batch.error(f"the time {out[row]} is not a whole number, a date or a time stamp", row, column)
    return out.astype(np.int64)


class FeatureReader:
    """Feature columns of one table: numbers and categories, batch by batch."""

    def __init__(self, features: tuple[str, ...], categorical: tuple[str, ...]) -> None:
        self.features, self.categorical = features, categorical
        self.codes = {column: IdIndex() for column in categorical}
        self._widths: dict[str, int] = {}

    def read(self, batch: Batch) -> dict[str, Array]:
        """Return the columns: float32 (n,) or (n, width), and int32 codes (n,). Raises DataError."""
        out: dict[str, Array] = {}
        for column in self.features:
            values = numbers(batch, column)
            width = values.shape[1] if values.ndim == 2 else 1
            known = self._widths.setdefault(column, width)
            if width != known:
                raise batch.error(f"the list has {width} values, those before have {known}", 0, column)
            with np.errstate(over="ignore"):
                out[column] = values.astype(np.float32)
            wrong = ~np.isfinite(out[column])
            if wrong.any():
                row = int(np.nonzero(wrong)[0][0])
                raise batch.error(f"{values[wrong].flat[0]} does not fit float32", row, column)
        for column in self.categorical:
            out[column] = self._code(batch, column)
        return out

    def number_categories(self, files: TableFiles) -> None:
        """Number the categories in ascending order; without this they are numbered as they appear.

        So their numbers do not tell in which rows they stand: a row that is held out must not change what others are.
        Reads the categorical columns of the whole table.
        """
        if self.categorical:
            for batch in files.batches(self.categorical, self.categorical):
                for column in self.categorical:
                    self._code(batch, column)
        for index in self.codes.values():
            if index.count:
                index.sort()

    def _code(self, batch: Batch, column: str) -> Array:
        """Number the categories; an empty cell is the category ``""``."""
        values = batch.column(column)
        if not is_text(values.type):
            if not (pa.types.is_integer(values.type) or pa.types.is_boolean(values.type)):
                raise batch.error(f"categories are texts or whole numbers, not {values.type}", 0, column)
            values = values.cast(pa.int64() if pa.types.is_boolean(values.type) else values.type)
        texts = compute.fill_null(values.cast(pa.string()), "")
        return self.codes[column].add(texts).astype(np.int32)

    def describe(self) -> tuple[FeatureColumn, ...]:
        """Return the manifest's entries; call it when all batches have passed."""
        numeric = [
            FeatureColumn(column=column, kind="numeric", dim=self._widths.get(column, 1)) for column in self.features
        ]
        codes = [
            FeatureColumn(column=column, kind="categorical", dim=1, cardinalities=(max(1, index.count),))
            for column, index in self.codes.items()
        ]
        return (*numeric, *codes)
