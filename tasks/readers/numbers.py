"""CSV files that hold numbers alone, without names, as OGB publishes them; compressed or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from configs.errors import DataError
from tasks.arrays import Array
from tasks.readers.csv_tables import TextTableFile
from tasks.readers.limits import MAX_GRAPHS


def number_chunks(path: Path, dtype: Any, *, num_columns: int | None = None, missing: bool = False) -> Iterator[Array]:
    """Yield a file's rows as arrays (rows, columns) of `dtype`: int32, int64, float32 or float64.

    Floats are rounded to float64 first, as `float()` rounds them, and are finite. `num_columns`: how many there have to
    be; None: as many as in the first line. `missing`: whether empty cells and nan are NaN (floats).

    Raises DataError: naming file, row (from 0, blank lines not counted) and column.
    """
    dtype = np.dtype(dtype)
    is_integer = dtype.kind == "i"
    missing = missing and not is_integer
    table = TextTableFile(path, header=False, num_columns=num_columns)
    kind = pa.from_numpy_dtype(dtype) if is_integer else pa.float64()
    convert = pc.ConvertOptions(
        column_types=dict.fromkeys(table.names(), kind), null_values=[""] if missing else [], check_utf8=False
    )
    row = 0
    # A blank line of one column is an empty cell.
    for batch in table.read(convert, blank_lines=missing and num_columns == 1):
        rows: Array = batch.to_tensor(null_to_nan=missing, row_major=not is_integer).to_numpy()
        yield rows if is_integer else checked_cast(rows, dtype, path, row, missing)
        row += len(rows)


def checked_cast(chunk: Array, dtype: Any, path: object, first_row: int | Array = 0, missing: bool = False) -> Array:
    """Return numbers (rows, columns) as `dtype` if none changes its meaning; floats are finite, or with `missing` NaN.

    `first_row`: which row of the file the first is, or each, int (rows,). Raises DataError naming row and column.
    """
    dtype = np.dtype(dtype)
    if chunk.dtype == dtype and dtype.kind != "f":
        return chunk
    with np.errstate(invalid="ignore", over="ignore"):
        out = chunk.astype(dtype, copy=False)
    if dtype.kind == "i":
        wrong, what = out != chunk, f"does not fit {dtype.name}"
        if chunk.dtype.kind == "u":
            wrong |= out < 0
    else:
        wrong, what = ~np.isfinite(out), "is not a finite number"
        if missing:
            wrong &= ~np.isnan(chunk)
    if wrong.any():
        row, column = (int(x[0]) for x in np.nonzero(wrong))
        value = chunk[row, column]
        what = f"does not fit {dtype.name}" if np.isfinite(value) else what
        raise DataError(
            f"{value!s} {what}",
            path=path,
            row=first_row + row if isinstance(first_row, int) else int(first_row[row]),
            column=column,
        )
    return out


def read_numbers(path: Path, dtype: Any, *, num_columns: int | None = None, most: int = MAX_GRAPHS) -> Array:
    """Return a whole file as (rows, columns), for files that fit memory; see `number_chunks`.

    Raises DataError: as `number_chunks` does, or there are more than `most` rows.
    """
    chunks, num_rows = [], 0
    for chunk in number_chunks(path, dtype, num_columns=num_columns):
        num_rows += len(chunk)
        if num_rows > most:
            raise DataError(f"has more than {most:,} rows", path=path)
        chunks.append(chunk)
    return np.concatenate(chunks) if chunks else np.empty((0, num_columns or 0), dtype)
