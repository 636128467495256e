"""Users' Parquet files: names known once, plain types, rows decoded by so many as the file's own directory lets fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from configs.errors import DataError
from configs.source_files import open_file
from tasks.readers.columns import check_columns, check_names, plain_batch
from tasks.readers.limits import BATCH_BYTES, MAX_ROW_BYTES

_BATCH_ROWS = 1 << 16
_VALUE_BYTES = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8}


def parquet_error(error: Exception, path: Path) -> DataError:
    """Say what is wrong with a Parquet file."""
    text = str(error)
    if "encrypt" in text.lower() or "decrypt" in text.lower():
        return DataError("is encrypted; write it without encryption", path=path)
    if "UTF8" in text:
        return DataError(f"holds a text that is not UTF-8 ({text[:200]}); write it as UTF-8", path=path)
    if "Expected all lists" in text:  # Arrow reads no column of lists of a fixed length of which one is none
        return DataError(
            "a list is missing, or of another length than its column's type says; store it as lists of any length "
            f"(list, large_list), whose empty cells `missing` fills ({text[:200]})",
            path=path,
        )
    if isinstance(error, MemoryError):
        return DataError(f"cannot be read: it needs more memory than there is ({text[:200]})", path=path)
    if "magic bytes" in text or "0 bytes" in text or "footer" in text:
        return DataError(f"is not a whole Parquet file ({text[:200]})", path=path)
    return DataError(f"is damaged or not Parquet ({text[:400]}); write it again", path=path)


@contextmanager
def open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file.

    Raises DataError: no regular file, damaged, encrypted, or two columns of one name. Damage found while the file is
    read is reported likewise.
    """
    open_file(path).close()
    try:
        with pq.ParquetFile(path) as file:
            check_names(file.schema_arrow.names, path)
            yield file
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError) as error:
        raise parquet_error(error, path) from error


def read_parquet(path: Path, columns: Sequence[str], documents: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
    """Yield batches of some columns, plain and bounded in bytes; `documents`: see `plain_batch`.

    Raises DataError (see `open_parquet`, `plain`).
    """
    with open_parquet(path) as file:
        check_columns(path, columns, file.schema_arrow.names)
        row = 0
        for batch in file.iter_batches(_batch_rows(path, file, set(columns)), columns=list(columns)):
            yield plain_batch(batch, path, row, documents=documents)
            row += batch.num_rows


def _batch_rows(path: Path, file: pq.ParquetFile, columns: set[str]) -> int:
    """Return how many rows to decode at once, by what the file says of its row groups."""
    most, names = _BATCH_ROWS, set(file.schema_arrow.names)
    for group in range(file.num_row_groups):
        # A broken entry of a column ends the process where `column` meets it; a reader raises an error.
        next(file.reader.iter_batches(0, [group], None, use_threads=False), None)
        about = file.metadata.row_group(group)
        row_bytes = 0
        for number in range(about.num_columns):
            column = about.column(number)
            name = column.path_in_schema  # `a.b.list.element` is of the column `a.b` if there is one, else of `a`
            while name and name not in names:
                name = name.rpartition(".")[0]
            if name in columns:
                size = column.num_values * _VALUE_BYTES.get(column.physical_type, 0)
                row_bytes += max(size, column.total_uncompressed_size) // max(1, about.num_rows)
        if row_bytes > MAX_ROW_BYTES:
            raise DataError(f"has rows of {row_bytes:,} bytes; a row may have {MAX_ROW_BYTES:,}", path=path)
        most = min(most, max(1, BATCH_BYTES // max(1, row_bytes)))
    return most
