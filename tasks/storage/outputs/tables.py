"""One Parquet or CSV file for users, written table by table (data sets: `tasks.ingest.writer`)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from tasks.readers.formulas import guarded
from tasks.storage.artifacts import empty_draft
from tasks.storage.file_names import beside

_GROUP_ROWS = 1 << 16
"""A row group has so many rows at least: readers hold a description of each group in memory."""


class ParquetOutput:
    """Rows go into a hidden file beside `path`, which takes its place at a good end; without a row there is none."""

    def __init__(self, path: Path, **options: Any) -> None:
        """`options` are those of `pyarrow.parquet.ParquetWriter`."""
        self.path = path
        self.num_rows = 0
        self._draft = beside(path, ".partial")
        self._options = options
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.Table] = []
        """Small tables, that make a row group together."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        try:
            if self._writer is not None:
                if kind is None and self._waiting:
                    self._writer.write_table(pa.concat_tables(self._waiting))
                self._writer.close()
                if kind is None:
                    self._draft.replace(self.path)
        finally:
            self._draft.unlink(missing_ok=True)

    def write(self, table: pa.Table) -> None:
        """Append rows; the first table decides the types."""
        if self._writer is None:
            self._writer = pq.ParquetWriter(empty_draft(self.path), table.schema, compression="zstd", **self._options)
        self._waiting.append(table.cast(self._writer.schema))
        self.num_rows += table.num_rows
        if sum(map(len, self._waiting)) >= _GROUP_ROWS:
            self._writer.write_table(pa.concat_tables(self._waiting))
            self._waiting.clear()


class CsvOutput(AbstractContextManager["CsvOutput"]):
    """A CSV file with a first line of names; a column of lists of one length becomes one for each place in them."""

    def __init__(self, path: Path) -> None:
        self._path, self.num_rows = path, 0
        self._file: Any = None
        self._writer: pc.CSVWriter | None = None

    def __exit__(self, *error: object) -> None:
        if self._writer is not None:
            self._writer.close()
            self._file.close()

    def write(self, table: pa.Table) -> None:
        """Append rows, no cell of which is a formula; the first table decides the types."""
        table = guarded(_flat(table))
        if self._writer is None:
            compression = "gzip" if self._path.suffix == ".gz" else None
            self._file = pa.output_stream(self._path, compression=compression)
            self._schema = table.schema
            self._writer = pc.CSVWriter(self._file, self._schema)
        self._writer.write_table(table.cast(self._schema))
        self.num_rows += table.num_rows


def _flat(table: pa.Table) -> pa.Table:
    columns = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        if not pa.types.is_fixed_size_list(column.type):
            columns[name] = column
            continue
        width = column.type.list_size
        places = pa.chunked_array([part.flatten() for part in column.chunks], column.type.value_type)
        for place in range(width):
            columns[f"{name}_{place}"] = places.take(pa.array(range(place, len(places), width), pa.int64()))
    return pa.table(columns)
