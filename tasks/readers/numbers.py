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
        yield rows if is_integer else _checked_floats(rows, dtype, path, row, missing)
        row += len(rows)


def _checked_floats(rows: Array, dtype: Any, path: Path, first_row: int, missing: bool) -> Array:
    """Return float64 (rows, columns) as `dtype`. Raises DataError for what is not finite, or not in its range."""
    with np.errstate(over="ignore"):
        floats = rows.astype(dtype, copy=False)
    wrong = ~np.isfinite(floats)
    if missing:
        wrong &= ~np.isnan(floats)
    if wrong.any():
        row, column = np.argwhere(wrong)[0].tolist()
        value = rows[row, column]
        why = f"does not fit {np.dtype(dtype).name}" if np.isfinite(value) else "is not a finite number"
        raise DataError(f"{value} {why}", path=path, row=first_row + row, column=column)
    return floats


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
