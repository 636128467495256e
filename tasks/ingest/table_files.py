"""Users' table files: found by path or pattern, read batch by batch, whatever their format."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as pc
from numpy.typing import NDArray

from configs.errors import DataError
from configs.matching import did_you_mean
from configs.source_files import check_file, is_folder, look_up, names_in, user_path
from tasks.ingest.csv_reader import NumberReader, comment_mark, count_columns
from tasks.readers.columns import check_columns, plain
from tasks.readers.csv_tables import check_delimiter, open_table, read_rows
from tasks.readers.parquet import open_parquet, read_parquet

Array = NDArray[Any]
Format = Literal["auto", "parquet", "csv", "tsv", "edgelist"]

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "edgelist",
    ".edges": "edgelist",
    ".edgelist": "edgelist",
    ".el": "edgelist",
}
_NO_DELIMITER = "\x1f"  # whole lines: it stands in no text


@dataclass(frozen=True)
class Batch:
    """Some rows of a file."""

    path: Path
    first_row: int
    """Row of the file that is the batch's first, counted from 0 without the header."""
    data: pa.RecordBatch

    def column(self, name: str) -> pa.Array:
        """Return a column as one array."""
        return self.data.column(self.data.schema.get_field_index(name))

    def error(self, message: str, row: int, column: object) -> DataError:
        """Return an error at a row of this batch."""
        return DataError(message, path=self.path, row=self.first_row + row, column=column)


@dataclass(frozen=True)
class TableFiles:
    """One table in one or many files of one format."""

    patterns: tuple[str, ...]
    format: Format = "auto"
    header: bool = True
    delimiter: str | None = None
    missing_values: tuple[str, ...] = ("",)
    """Cells of a CSV that count as empty."""

    def __post_init__(self) -> None:
        """Raise RecipeError for a delimiter that cannot be one."""
        if self.delimiter is not None:
            check_delimiter(self.delimiter)

    def paths(self) -> list[Path]:
        """Return the files in the order of patterns, each pattern's sorted.

        Raises:
            DataError: there are none, one is named twice, or is no regular file that can be read (a pipe, a dangling
                link, a folder).
        """
        found: dict[str, Path] = {}
        for pattern in self.patterns:
            path = user_path(pattern)
            if is_folder(path):
                matches = [entry for entry in names_in(path) if not entry.name.startswith((".", "_"))]
                if not matches:
                    raise DataError("is a folder without files", path=pattern)
            elif look_up(path) is None and glob.has_magic(pattern):
                matches = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 -- absolute patterns
            else:
                matches = [path] if look_up(path) is not None else []
            if not matches:
                raise DataError(f"there is no such file{self._hint(path)}", path=pattern)
            for match in matches:
                check_file(match)
                place = os.path.realpath(match)
                if place in found:
                    raise DataError(
                        "is named twice in the files of one table, and its rows would count twice", path=match
                    )
                found[place] = match
        return list(found.values())

    @staticmethod
    def _hint(path: Path) -> str:
        if not is_folder(path.parent):
            return f": there is no folder {path.parent} (relative paths start at {Path.cwd()})"
        return did_you_mean(path.name, [p.name for p in names_in(path.parent)]) or f" in {path.parent.resolve()}"

    def named(self) -> list[tuple[str, Path]]:
        """Return name and path of each file in order; none where one is missing."""
        try:
            return [(path.name, path) for path in self.paths()]
        except DataError:
            return []

    def batches(
        self, columns: Sequence[str], texts: Sequence[str] = (), numbers: Sequence[str] = ()
    ) -> Iterator[Batch]:
        """Yield batches with at least these columns. CSV columns in `texts` stay text, those in `numbers` are float64.

        Files without a header have columns named `0`, `1`, ...

        Raises:
            DataError: a missing file or column, ragged rows, a damaged file, a cell of the wrong kind.
        """
        wanted = list(dict.fromkeys(columns))
        for path in self.paths():
            kind, row = self._kind(path), 0
            if kind == "parquet":
                read = read_parquet(path, wanted)
            elif kind == "edgelist" and not texts:
                read = _read_edge_list(path, wanted, self.delimiter or "", numbers)
            elif kind == "edgelist" and self.delimiter is None and wanted != ["0"]:
                read = _read_text_list(path, wanted)
            else:
                header = self.header and kind != "edgelist"
                read = _read_csv(path, self._delimiter(kind), header, self._conversion(wanted, texts, numbers))
            for data in read:
                columns_read = [plain(data.column(i), path, row, name) for i, name in enumerate(data.schema.names)]
                yield Batch(path, row, pa.RecordBatch.from_arrays(columns_read, names=data.schema.names))
                row += data.num_rows

    def _conversion(self, wanted: list[str], texts: Sequence[str], numbers: Sequence[str]) -> pc.ConvertOptions:
        """Say how the cells of a CSV are read."""
        kinds = {name: pa.string() for name in texts} | {name: pa.float64() for name in numbers}
        return pc.ConvertOptions(
            include_columns=wanted,
            column_types=kinds,
            strings_can_be_null=True,
            null_values=list(self.missing_values),
            check_utf8=False,  # what is no UTF-8 is found by `plain`, which names the byte
        )

    def column_names(self) -> list[str]:
        """Return the columns of the first file. Raises DataError."""
        path = self.paths()[0]
        kind = self._kind(path)
        if kind == "parquet":
            with open_parquet(path) as file:
                return list(file.schema_arrow.names)
        if kind == "edgelist":
            return [str(i) for i in range(count_columns(path, self.delimiter or ""))]
        with open_table(path, self._delimiter(kind), self.header) as (names, _):
            return names

    @property
    def has_name_line(self) -> bool:
        """Whether the first line of the first file is taken as the columns' names."""
        return self.header and self._kind(self.paths()[0]) in ("csv", "tsv")

    def _delimiter(self, kind: Format) -> str:
        return self.delimiter or ("\t" if kind == "tsv" else ",")

    def _kind(self, path: Path) -> Format:
        if self.format != "auto":
            return self.format
        suffixes = [suffix for suffix in path.suffixes if suffix not in (".gz", ".zst")]
        kind = _SUFFIXES.get(suffixes[-1].lower()) if suffixes else None
        if kind is None:
            known = ", ".join(_SUFFIXES)
            raise DataError(
                f"the name does not tell the format; known: {known} (and .gz, .zst); or give format", path=path
            )
        return kind


def _read_csv(path: Path, delimiter: str, header: bool, convert: pc.ConvertOptions) -> Iterator[pa.RecordBatch]:
    with open_table(path, delimiter, header) as (names, stream):
        yield from read_rows(path, names, stream, delimiter, convert)


def _read_edge_list(path: Path, wanted: list[str], delimiter: str, numbers: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Lines of numbers, `#` or `%` comments skipped: integers unless a weight asks for more."""
    dtype = np.float64 if numbers else np.int64
    reader = NumberReader(path, dtype, delimiter=delimiter, comment=comment_mark(path))
    row = 0
    for chunk in reader:
        check_columns(path, wanted, [str(i) for i in range(chunk.shape[1])])
        arrays = []
        for name in wanted:
            values = np.ascontiguousarray(chunk[:, int(name)])
            if name not in numbers and values.dtype.kind == "f":
                values = _whole(path, values, row, name)
            arrays.append(pa.array(values))
        yield pa.RecordBatch.from_arrays(arrays, names=wanted)
        row += len(chunk)
    if row == 0:
        raise DataError("is empty", path=path)


def _read_text_list(path: Path, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    """Lines of texts without blanks, `#` or `%` comments skipped."""
    mark, width, row = comment_mark(path), count_columns(path, ""), 0
    check_columns(path, wanted, [str(i) for i in range(width)])
    convert = pc.ConvertOptions(include_columns=["0"], column_types={"0": pa.string()}, check_utf8=False)
    with open_table(path, _NO_DELIMITER, False) as (names, stream):
        for data in read_rows(path, names, stream, _NO_DELIMITER, convert, quotes=False):
            lines = compute.utf8_trim_whitespace(plain(data.column(0), path, row, "0"))
            lines = lines.filter(compute.invert(compute.starts_with(lines, mark)))
            words = compute.utf8_split_whitespace(lines)
            lengths = np.asarray(compute.list_value_length(words))
            ragged = np.flatnonzero(lengths != width)
            if len(ragged):
                bad = int(ragged[0])
                raise DataError(
                    f"the row has {lengths[bad]} columns, the others have {width}", path=path, row=row + bad
                )
            cells = words.flatten()
            arrays = [cells.take(pa.array(np.arange(int(name), len(cells), width))) for name in wanted]
            yield pa.RecordBatch.from_arrays(arrays, names=wanted)
            row += len(words)


def _whole(path: Path, values: Array, first_row: int, column: str) -> Array:
    """Return numbers that were read as float64 as int64. Raises DataError where that would change one."""
    wrong = np.flatnonzero((values != np.floor(values)) | (np.abs(values) >= 2**53))
    if len(wrong):
        bad = int(wrong[0])
        why = "is not an integer"
        if abs(values[bad]) >= 2**53:
            why = "is 2^53 or more, where numbers beside fractions are not exact; store the table as CSV or Parquet"
        raise DataError(f"{values[bad]:.17g} {why}", path=path, row=first_row + bad, column=column)
    return values.astype(np.int64)
