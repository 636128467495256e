"""One CSV file for users, written table by table; compressed where its name ends with `.gz`."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc

from tasks.readers.formulas import guarded


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
