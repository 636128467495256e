"""Other cells for some rows of a user's table, of the same kind: a whole number stays one, a date a date."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from tasks.arrays import Array
from tasks.ingest.tables.columns import is_list
from tasks.readers.columns import is_text

_WHOLE = r"^\s*[+-]?[0-9]{1,15}\s*$"
_NUMBER = r"^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_KEPT = r"(?i)^\s*(\d{4}-\d{2}-\d{2}([T ].*)?|true|false)\s*$"
_FAR = 1000
_MOST = 1 << 40


def swapped(column: pa.Array, rows: Array, random: np.random.Generator) -> pa.Array:
    """Return a column in which the cells of some rows, int64 (n,), have changed places."""
    order = np.arange(len(column))
    order[rows] = random.permutation(rows)
    return column.take(pa.array(order))


def changed(column: pa.Array, rows: Array, random: np.random.Generator) -> pa.Array:
    """Return a column in which some rows, int64 (n,), have cells of other rows among them, and those other values.

    Empty cells change places only: whether a column has any is known of all rows.
    """
    column = swapped(column, rows, random)
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        return _replaced(column, rows, _other_numbers(column.take(pa.array(rows)), random))
    if is_text(kind):
        return _replaced(column, rows, _other_texts(column.take(pa.array(rows)), random))
    if is_list(kind) and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        cells = column.take(pa.array(rows))
        flat = _other_numbers(cells.flatten(), random)
        lengths = np.asarray(compute.fill_null(compute.list_value_length(cells), 0))
        ends = np.concatenate([[0], np.cumsum(lengths)]).tolist()
        there = np.asarray(compute.is_valid(cells)).tolist()
        other = [
            flat.slice(a, b - a).to_pylist() if known else None
            for a, b, known in zip(ends[:-1], ends[1:], there, strict=True)
        ]
        return _replaced(column, rows, pa.array(other, kind))
    return column


def _replaced(column: pa.Array, rows: Array, other: pa.Array) -> pa.Array:
    """Return the column with `other` in some rows."""
    place = np.arange(len(column))
    place[rows] = len(column) + np.arange(len(rows))
    return pa.concat_arrays([column, other]).take(pa.array(place))


def _other_numbers(cells: pa.Array, random: np.random.Generator) -> pa.Array:
    """Return other numbers of the same type; empty cells and NaN stay."""
    kind, missing = cells.type, np.asarray(compute.is_null(cells))
    if pa.types.is_floating(kind):
        values = np.asarray(compute.fill_null(cells, 0), np.float64)
        values = values * random.uniform(2, 3, len(values)) + _FAR * random.normal(size=len(values))
        return pa.array(values.astype(kind.to_pandas_dtype()), kind, mask=missing)
    limits = np.iinfo(kind.to_pandas_dtype())
    low, high = max(limits.min, -_MOST), min(limits.max, _MOST)
    values = np.asarray(compute.fill_null(cells, 0)).astype(object if kind == pa.uint64() else np.int64)
    values = np.clip(values + random.integers(1, _FAR, len(values)), low, high).astype(kind.to_pandas_dtype())
    return pa.array(values, kind, mask=missing)


def _other_texts(cells: pa.Array, random: np.random.Generator) -> pa.Array:
    """Return other texts: of a number another number, of a date and of a truth value the same, else a new text."""
    whole, number, kept = (
        compute.fill_null(compute.match_substring_regex(cells, pattern), False) for pattern in (_WHOLE, _NUMBER, _KEPT)
    )
    new = compute.if_else(random.random(len(cells)) < 0.5, compute.binary_join_element_wise(cells, "late", "~"), cells)
    more = pa.array(random.integers(1, _FAR, len(cells)))
    digits = compute.if_else(whole, compute.utf8_trim_whitespace(cells), "0")
    sums = compute.add(compute.utf8_ltrim(digits, "+").cast(pa.int64()), more).cast(pa.string())
    decimals = pa.array((random.normal(size=len(cells)) * _FAR).round(4)).cast(pa.string())
    plain = compute.if_else(number, compute.if_else(whole, sums, decimals), new)
    return compute.if_else(kept, cells, plain).cast(cells.type)
