"""Users' Parquet files: names known once, batches bounded in bytes, plain types.

Parquet can say much in few bytes: a text of a megabyte that a million rows refer to, lists that a run length makes a
thousand million long. What the file's own directory says of rows, values and bytes decides how many rows are decoded at
once, and columns of repeated texts are decoded in portions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as pq

from configs.errors import DataError
from configs.source_files import open_file
from tasks.readers.columns import check_columns, check_length, check_names, is_text, plain_batch
from tasks.readers.limits import BATCH_BYTES, MAX_ROW_BYTES

_BATCH_ROWS = 1 << 17
_MAX_DECODED_BYTES = 1 << 30  # what rows that all refer to the longest text would take
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
        return DataError(f"cannot be read: it asks for more memory than there is ({text[:200]})", path=path)
    if "magic bytes" in text or "0 bytes" in text or "footer" in text:
        return DataError(f"is not a whole Parquet file ({text[:200]})", path=path)
    return DataError(f"is damaged or not Parquet ({text[:400]}); write it again", path=path)


@contextmanager
def open_parquet(path: Path, texts: Sequence[str] = ()) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; `texts`: columns to be read as dictionaries.

    Raises:
        DataError: no regular file, damaged, encrypted, or two columns of one name. Damage found while the file is read
            is reported likewise.
    """
    open_file(path).close()
    try:
        with pq.ParquetFile(path, read_dictionary=list(texts) or None) as file:
            check_names(file.schema_arrow.names, path)
            yield file
    except (pa.ArrowException, OSError, MemoryError, UnicodeDecodeError) as error:
        raise parquet_error(error, path) from error


def read_parquet(path: Path, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches of some columns, plain and bounded in bytes. Raises DataError (see `open_parquet`, `plain`)."""
    with open_parquet(path) as file:
        check_columns(path, columns, file.schema_arrow.names)
        rows = _batch_rows(path, file, set(columns))
        schema = file.schema_arrow
        texts = [name for name in columns if is_text(schema.field(name).type)]
    with open_parquet(path, _long_repeated(path, texts, rows)) as file:
        row = 0
        for batch in file.iter_batches(rows, columns=list(columns)):
            for some in _bounded(path, batch):
                yield plain_batch(some, path, row)
                row += some.num_rows


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
            if _owner(column.path_in_schema, names) not in columns:
                continue
            size = column.num_values * _VALUE_BYTES.get(column.physical_type, 0)
            row_bytes += max(size, column.total_uncompressed_size) // max(1, about.num_rows)
        if row_bytes > MAX_ROW_BYTES:
            raise DataError(f"has rows of {row_bytes:,} bytes; a row may have {MAX_ROW_BYTES:,}", path=path)
        most = min(most, max(1, BATCH_BYTES // max(1, row_bytes)))
    return most


def _owner(path_in_schema: str, names: set[str]) -> str:
    """Return the column that a path belongs to: `a.b.list.element` to `a.b`, if there is one, else to `a`."""
    name = path_in_schema
    while name and name not in names:
        name = name.rpartition(".")[0]
    return name


def _long_repeated(path: Path, texts: Sequence[str], rows: int) -> list[str]:
    """Return the columns of texts whose rows, decoded at once, could take more than `_MAX_DECODED_BYTES`.

    A column stores each text once, before the rows that refer to it; those lists are looked at here.
    """
    repeated: set[str] = set()
    if not texts:
        return []
    with open_parquet(path, texts) as file:
        for group in range(file.num_row_groups):
            for batch in file.iter_batches(1, row_groups=[group], columns=list(texts)):
                for name, column in zip(batch.schema.names, batch.columns, strict=True):
                    if pa.types.is_dictionary(column.type):
                        longest = compute.max(compute.binary_length(column.dictionary)).as_py() or 0
                        check_length(longest, path, None, name)
                        if longest * rows > _MAX_DECODED_BYTES:
                            repeated.add(name)
                break
    return sorted(repeated)


def _bounded(path: Path, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch with its dictionaries decoded, in portions where that would take more than `BATCH_BYTES`."""
    row_bytes = np.zeros(batch.num_rows, np.int64)
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not pa.types.is_dictionary(column.type):
            continue
        if (compute.max(column.indices).as_py() or 0) >= max(1, len(column.dictionary)):
            raise DataError(
                "is damaged: a row refers to a value that is not there; write it again", path=path, column=name
            )
        if is_text(column.type.value_type) and len(column.dictionary):
            lengths = np.asarray(compute.fill_null(compute.binary_length(column.dictionary), 0), np.int64)
            row_bytes += lengths[np.asarray(compute.fill_null(column.indices, 0), np.int64)]
    total = np.cumsum(row_bytes)
    first = 0
    while first < batch.num_rows:
        before = int(total[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(total, before + BATCH_BYTES, side="right")))
        yield batch.slice(first, last - first)
        first = last
