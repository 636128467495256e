"""Cells of users' tables as checked NumPy arrays.

Mistakes are gathered by the batch, row by row, and harmless values take the places of the wrong ones, so that the
check goes on to the next column.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from tasks.arrays import Array
from tasks.ingest.edges import weight_mistakes
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.intake import truths, with_nulls
from tasks.readers.columns import is_text

EXACT = 2**53
"""Whole numbers up to here are exact in float64."""


def rows_of(values: Any, chosen: Array) -> Any:
    """Return some rows of a column, NumPy's or Arrow's: those of a mask, bool (n,), or by number, int (m,)."""
    if not isinstance(values, pa.Array):
        return values[chosen]
    return values.filter(pa.array(chosen)) if chosen.dtype == np.bool_ else values.take(pa.array(chosen))


def end_to_end(parts: Sequence[Any]) -> Any:
    """Return the parts of a column, NumPy's or Arrow's, as one."""
    return pa.concat_arrays(parts) if isinstance(parts[0], pa.Array) else np.concatenate(parts)


def ids(batch: TableBatch, column: str) -> pa.Array:
    """Return ids without gaps: whole numbers >= 0 (int64) or texts. Raises DataError naming row and column."""
    data = pa.RecordBatch.from_arrays([with_nulls(batch.column(column), ("",))], names=[column])
    alone = TableBatch(batch.path, batch.first_row, data)
    values, _ = checked_ids(alone, column)
    alone.problems.raise_any()
    return values


def checked_ids(batch: TableBatch, column: str, *, texts: bool = False) -> tuple[pa.Array, Array | None]:
    """Return ids, whole numbers >= 0 (int64) or texts, and which rows have none (bool; None: all have one).

    `texts` takes whole numbers as texts too.
    """
    values = batch.column(column)
    if is_text(values.type):
        none = batch.wrong(compute.fill_null(compute.equal(values, ""), True), column, "the id is missing")
        return values, none
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), pa.int64()), batch.wrong(compute.is_null(values), column, "the id is missing")
    if not pa.types.is_integer(values.type):
        return pa.nulls(len(values), pa.int64()), _no_ids(batch, column, values)
    wrong = [batch.wrong(compute.is_null(values), column, "the id is missing")] if values.null_count else []
    values, large = int64(batch, column, values, "id")
    wrong.append(large)
    if not texts and len(values) and (compute.min(values).as_py() or 0) < 0:
        kind = "the id is negative"
        below = compute.fill_null(compute.less(values, 0), False)
        wrong.append(batch.wrong(below, column, kind, lambda row: f"the id {values[row]} is negative"))
    parts = [rows for rows in wrong if rows is not None]
    return values.cast(pa.string()) if texts else values, np.logical_or.reduce(parts) if parts else None


def int64(batch: TableBatch, column: str, values: pa.Array, what: str) -> tuple[pa.Array, Array | None]:
    """Return whole numbers as int64, null where they do not fit, and which those are (bool; None: none)."""
    if not pa.types.is_uint64(values.type):
        return values.cast(pa.int64()), None
    large = compute.greater(values, pa.scalar(np.iinfo(np.int64).max, pa.uint64()))
    bad = batch.wrong(
        compute.fill_null(large, False),
        column,
        f"the {what} does not fit int64",
        lambda row: f"the {what} {values[row]} does not fit int64" + ("; store ids as texts" if what == "id" else ""),
    )
    return (values if bad is None else compute.if_else(large, None, values)).cast(pa.int64()), bad


def _no_ids(batch: TableBatch, column: str, values: pa.Array) -> Array:
    """Say why a column of another kind holds no ids; no row has one then."""
    if pa.types.is_floating(values.type):
        _refuse_decimals(batch, column, values)
    else:
        what = "true and false" if pa.types.is_boolean(values.type) else str(values.type)
        batch.wrong_column(
            column,
            f"holds {what}; ids are whole numbers or texts: dataset.text_ids=true reads a CSV's as texts, else store "
            "them so",
        )
    return np.ones(len(values), np.bool_)


def _refuse_decimals(batch: TableBatch, column: str, values: pa.Array) -> None:
    """Gather decimal ids. One cell with a fraction, a plus sign or too many digits makes decimals of a CSV's column."""
    kind = "ids are whole numbers or texts"
    batch.wrong(compute.is_null(values, nan_is_null=True), column, "the id is missing")
    there = np.nan_to_num(np.asarray(compute.fill_null(values.cast(pa.float64()), 0)), posinf=np.inf, neginf=-np.inf)
    large = np.abs(there) >= 2.0**63

    def message(row: int) -> str:
        if large[row]:
            return f"the id {there[row]:.0f} does not fit int64; dataset.text_ids=true reads ids as texts"
        return f"the id {there[row]} is a decimal number; {kind}: {_WAY_OUT_OF_DECIMALS}"

    if batch.wrong(large | (there != np.floor(there)), column, kind, message) is None:
        batch.wrong_column(column, f"holds decimal numbers; {kind}: {_WAY_OUT_OF_DECIMALS}")


_WAY_OUT_OF_DECIMALS = (
    "dataset.text_ids=true reads a CSV's as texts, or write them without a fraction or a plus sign (many tools write "
    "3.0 for 3 where a column has empty cells)"
)


def numbers(
    batch: TableBatch, column: str, *, missing: bool = False, width: int | None = None, way_out: str = ""
) -> Array:
    """Return a column as float64, (n,) or (n, width) for lists; 0 in the place of what is wrong.

    `missing` lets empty cells and NaN pass as NaN; `way_out` is what one may do about an empty cell, for messages.
    """
    values = batch.column(column)
    empty = np.asarray(compute.is_null(values)) if values.null_count else np.zeros(len(values), np.bool_)
    if not missing:
        batch.wrong(empty, column, "the cell is empty", f"the cell is empty{way_out}")
    if is_list(values.type):
        rows = np.flatnonzero(~empty)
        lists, width = _flatten(batch, column, values.drop_null(), rows, width)
        out = np.full((len(values), width), np.nan if missing else 0.0)
        out[rows] = _as_float(batch, column, lists, np.repeat(rows, width)).reshape(len(rows), width)
    else:
        out = _as_float(batch, column, values, None)
        if not missing:
            out[empty] = 0
    wrong = np.isinf(out) if missing else ~np.isfinite(out)
    if wrong.any():
        rows = wrong if wrong.ndim == 1 else wrong.any(1)

        def message(row: int) -> str:
            value = out[row][wrong[row]].flat[0]
            return f"{value} is not a finite number{way_out if np.isnan(value) else ''}"

        batch.wrong(rows, column, "not a finite number", message)
        out[wrong] = 0
    return out


def weights(batch: TableBatch, column: str, what: str) -> Array:
    """Return weights, float32 (n,); 0 in the place of what is none, which is gathered; `what`: an edge, say."""
    values = numbers(batch, column, way_out=f"; {what} without a weight has to be left out, or given one")
    if values.ndim != 1:
        batch.wrong_column(column, "is a column of lists; a weight is a number")
        return np.zeros(len(values), np.float32)
    usable = values.copy()
    for wrong, kind, words in weight_mistakes(values):
        message = lambda row, words=words: f"the weight {values[row]:g} {words}"  # noqa: E731
        batch.wrong(wrong, column, kind, message)
        usable[wrong] = 0
    return float32(batch, column, usable)


def float32(batch: TableBatch, column: str, values: Array) -> Array:
    """Return numbers (n,) or (n, width) as float32; those beyond its range are wrong. NaN stays."""
    with np.errstate(over="ignore"):
        out = values.astype(np.float32)
    wrong = np.isinf(out)
    if wrong.any():
        rows = wrong if wrong.ndim == 1 else wrong.any(1)
        batch.wrong(
            rows, column, "does not fit float32", lambda row: f"{values[row][wrong[row]].flat[0]} does not fit float32"
        )
        out[wrong] = 0
    return out


def is_list(kind: pa.DataType) -> bool:
    """Whether cells are lists, of any length or of a fixed one."""
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _flatten(batch: TableBatch, column: str, lists: pa.Array, rows: Array, width: int | None) -> tuple[pa.Array, int]:
    """Return the values of lists end to end and how many each has; `rows` are the batch's rows that they stand in."""
    if pa.types.is_fixed_size_list(lists.type):
        return lists.flatten(), int(lists.type.list_size)
    lengths = np.asarray(compute.list_value_length(lists))
    if width is None:
        width = int(lengths[0]) if len(lengths) else 1
    ragged = np.zeros(batch.num_rows, np.bool_)
    ragged[rows] = lengths != width
    if not ragged.any():
        return lists.flatten(), width
    size = dict(zip(rows.tolist(), lengths.tolist(), strict=True))
    batch.wrong(ragged, column, "lists differ", lambda row: f"the list has {size[row]} values, the others have {width}")
    return pa.array(np.zeros(len(rows) * width)), width


def _as_float(batch: TableBatch, column: str, values: pa.Array, rows: Array | None) -> Array:
    """Return flat values as float64, NaN for null. `rows`: of lists' values, the row of each."""
    if is_text(values.type) and rows is None:
        replaced, is_word = truths(values)
        if (is_word | np.asarray(compute.is_null(values))).all():
            values = replaced.cast(pa.float64())
    kind = values.type
    plain = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not plain and not pa.types.is_null(kind):
        why = "text; numbers are needed (texts can be categorical)" if is_text(kind) else f"{kind}; numbers are needed"
        batch.wrong_column(column, f"is {why}")
        return np.zeros(len(values))
    if rows is not None and values.null_count:
        gaps = np.zeros(batch.num_rows, np.bool_)
        gaps[rows[np.asarray(compute.is_null(values))]] = True
        batch.wrong(gaps, column, "the list has an empty value")
        values = compute.fill_null(values, 0)
    return np.array(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False), np.float64)
