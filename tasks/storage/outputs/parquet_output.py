"""One Parquet file for users, written table by table, whole or not at all (data sets: `tasks.ingest.writer`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

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
