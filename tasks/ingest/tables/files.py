"""Users' table files: found by path or pattern, read batch by batch, whatever their format."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.csv as pc

from configs.errors import DataError
from configs.source_files import unknown_format
from configs.values.versioned_tables import is_versioned, parse_reference
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.paths import files_of, key_columns, keys_of
from tasks.readers.csv_tables import TextTableFile, as_texts, check_delimiter
from tasks.readers.duckdb_tables import duckdb_columns, read_duckdb
from tasks.readers.parquet import open_parquet, read_parquet
from tasks.readers.table_formats.opened import open_versioned
from tasks.readers.table_formats.tables import VersionedTable

Format = Literal["auto", "parquet", "csv", "tsv", "edgelist", "duckdb"]

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "edgelist",
    ".edges": "edgelist",
    ".edgelist": "edgelist",
    ".el": "edgelist",
    ".duckdb": "duckdb",
}


@dataclass(frozen=True)
class TableFiles:
    """One table in one or many files of one format."""

    patterns: tuple[str, ...]
    format: Format = "auto"
    header: bool = True
    delimiter: str | None = None
    missing_values: tuple[str, ...] = ("",)
    """Cells of texts that count as empty."""
    whole_lines: bool = False
    """Whether each line of an edge list is one text, blanks and all, where texts are read: a list of ids."""
    table: str = ""
    """Of a DuckDB file: the table."""
    documents: tuple[str, ...] = ()
    """Columns whose cells may be as long as a row."""

    def __post_init__(self) -> None:
        """Raise RecipeError for a delimiter that cannot be one."""
        if self.delimiter is not None:
            check_delimiter(self.delimiter)

    def paths(self) -> list[Path]:
        """Return the files in their order; of a versioned table what messages call it. Raises as `files_of` does."""
        versioned = self.versioned
        return files_of(self.patterns) if versioned is None else [versioned.path]

    @cached_property
    def versioned(self) -> VersionedTable | None:
        """The table of Delta Lake or Iceberg that the files are; None: plain files. Raises DataError."""
        if len(self.patterns) != 1 or not is_versioned(self.patterns[0]):
            return None
        return open_versioned(parse_reference(self.patterns[0]))

    def batches(
        self, columns: Sequence[str], texts: Sequence[str] = (), numbers: Sequence[str] = ()
    ) -> Iterator[TableBatch]:
        """Yield batches with at least these columns. CSV columns in `texts` stay text, those in `numbers` are float64.

        Files without a header have columns named `0`, `1`, ...

        Raises DataError: a missing file or column, ragged rows, a damaged file, a cell of the wrong kind.
        """
        kinds = {name: kind for name, kind in self._keys.items() if name in columns}
        kinds |= {name: pa.string() for name in texts if name in kinds}
        kinds |= {name: pa.float64() for name in numbers if kinds.get(name) == pa.int64()}
        texts, numbers = ([name for name in some if name not in kinds] for some in (texts, numbers))
        stored = [name for name in dict.fromkeys(columns) if name not in kinds]
        if not stored and kinds:
            stored = self._own_columns()[:1]  # to count the rows
        for path in self.paths():
            kind, row = self._kind(path), 0
            if self.versioned is not None:
                read = self.versioned.read(stored, self.documents)
            elif kind == "parquet":
                read = read_parquet(path, stored, self.documents)
            elif kind == "duckdb":
                read = read_duckdb(path, self._table(path), stored, self.documents)
            else:
                convert = pc.ConvertOptions(
                    include_columns=stored,
                    column_types=dict.fromkeys(texts, pa.string()) | dict.fromkeys(numbers, pa.float64()),
                    strings_can_be_null=True,
                    null_values=list(self.missing_values),
                    check_utf8=False,  # what is no UTF-8 is found by `plain`, which names the byte
                )
                read = self._text_table(path, kind).read(convert)
            named = path / self.table if kind == "duckdb" else path
            for data in read:
                for key, key_kind in kinds.items():
                    value = pa.scalar(keys_of(path)[key], pa.string()).cast(key_kind)
                    data = data.append_column(key, pa.repeat(value, data.num_rows))
                yield TableBatch(named, row, data)
                row += data.num_rows

    def column_names(self) -> list[str]:
        """Return the columns of the first file, and those that stand in the names of folders. Raises DataError."""
        return [*self._own_columns(), *self._keys]

    @cached_property
    def _keys(self) -> dict[str, pa.DataType]:
        """Columns that stand in the names of the files' folders."""
        if self.versioned is not None or not any(map(keys_of, self.paths())):
            return {}
        keys = key_columns(self.paths(), self._own_columns())
        return {key: pa.int64() if is_whole else pa.string() for key, is_whole in keys.items()}

    def _own_columns(self) -> list[str]:
        path = self.paths()[0]
        kind = self._kind(path)
        if self.versioned is not None:
            return self.versioned.column_names()
        if kind == "parquet":
            with open_parquet(path) as file:
                return list(file.schema_arrow.names)
        if kind == "duckdb":
            return duckdb_columns(path, self._table(path))
        return self._text_table(path, kind).names()

    def head(self, most_rows: int, most_columns: int) -> pa.RecordBatch | None:
        """Return the first file's first lines as texts, one of names included; None where columns have types.

        Raises DataError.
        """
        path = self.paths()[0]
        kind = self._kind(path)
        if kind in ("parquet", "duckdb"):
            return None
        table = replace(self._text_table(path, kind), header=False)
        with closing(table.read(as_texts(table.names()[:most_columns]))) as batches:
            lines = next(batches, None)
        return lines if lines is None else lines.slice(0, most_rows)

    @property
    def has_name_line(self) -> bool:
        """Whether the first line of the first file is taken as the columns' names."""
        return self.header and self._kind(self.paths()[0]) in ("csv", "tsv")

    def _table(self, path: Path) -> str:
        if not self.table:
            raise DataError("is a DuckDB file, which only the data set `database` reads; export the table", path=path)
        return self.table

    def _text_table(self, path: Path, kind: Format) -> TextTableFile:
        if kind == "edgelist":
            return TextTableFile(path, self.delimiter or "", is_edge_list=True, whole_lines=self.whole_lines)
        mark = self.delimiter or ("\t" if kind == "tsv" else ",")
        return TextTableFile(path, mark, self.header, documents=self.documents)

    def _kind(self, path: Path) -> Format:
        if self.versioned is not None:
            return "parquet"  # columns have types
        if self.format != "auto":
            return self.format
        suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".zst")]
        kind = _SUFFIXES.get(suffixes[-1].lower()) if suffixes else None
        if kind is None:
            raise unknown_format(path, _SUFFIXES)
        return kind
