"""Users' table files: found by path or pattern, read batch by batch, whatever their format."""

from __future__ import annotations

import csv
import glob
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.parquet as pq

from configs.errors import DataError
from configs.matching import did_you_mean
from tasks.ingest.csv_reader import STREAM_ERRORS, NumberReader, open_stream, stream_error

Format = Literal["auto", "parquet", "csv", "tsv", "edgelist"]

_BATCH_ROWS = 1 << 17
_BLOCK_BYTES = 8 << 20
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

    def paths(self) -> list[Path]:
        """Return the files in the order of patterns, each pattern's sorted. Raises DataError where there are none."""
        found: list[Path] = []
        for pattern in self.patterns:
            path = Path(pattern).expanduser()
            if path.is_dir():
                matches = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith((".", "_")))
            elif glob.has_magic(pattern):
                matches = [Path(name) for name in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207 -- absolute patterns
            else:
                matches = [path] if path.is_file() else []
            if not matches:
                raise DataError(f"there is no such file{self._hint(path)}", path=pattern)
            found += matches
        return found

    @staticmethod
    def _hint(path: Path) -> str:
        if not path.parent.is_dir():
            return f": there is no folder {path.parent} (relative paths start at {Path.cwd()})"
        return did_you_mean(path.name, [p.name for p in path.parent.iterdir()]) or f" in {path.parent.resolve()}"

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
            kind = self._kind(path)
            try:
                if kind == "parquet":
                    yield from _read_parquet(path, wanted)
                elif kind == "edgelist" and not texts:
                    yield from _read_edge_list(path, wanted, self.delimiter or "", numbers)
                else:
                    delimiter = self.delimiter or ("\t" if kind == "tsv" else ",")
                    header = self.header and kind != "edgelist"
                    yield from _read_csv(path, wanted, delimiter, header, texts, numbers, self.missing_values)
            except pa.ArrowInvalid as error:
                raise _arrow_error(error, path) from error
            except STREAM_ERRORS as error:
                raise stream_error(error, path) from error

    def column_names(self) -> list[str]:
        """Return the columns of the first file."""
        path = self.paths()[0]
        kind = self._kind(path)
        if kind == "parquet":
            return list(pq.read_schema(path).names)
        try:
            with open_stream(path) as stream:
                line = stream.readline()
        except STREAM_ERRORS as error:
            raise stream_error(error, path) from error
        if kind == "edgelist":
            return [str(i) for i in range(len(line.split(self.delimiter.encode() if self.delimiter else None)))]
        return _csv_columns(path, line, self.delimiter or ("\t" if kind == "tsv" else ","), self.header)

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


def _check_columns(path: Path, wanted: list[str], there: Sequence[str]) -> None:
    for name in wanted:
        if name not in there:
            raise DataError(f"has no column {name!r}{did_you_mean(name, there)}; it has {', '.join(there)}", path=path)


def _read_parquet(path: Path, wanted: list[str]) -> Iterator[Batch]:
    with pq.ParquetFile(path) as file:
        _check_columns(path, wanted, file.schema_arrow.names)
        row = 0
        for data in file.iter_batches(_BATCH_ROWS, columns=wanted):
            yield Batch(path, row, data)
            row += data.num_rows


def _read_csv(
    path: Path,
    wanted: list[str],
    delimiter: str,
    header: bool,
    texts: Sequence[str],
    numbers: Sequence[str],
    missing_values: Sequence[str],
) -> Iterator[Batch]:
    with open_stream(path) as stream:
        line = stream.readline()
    there = _csv_columns(path, line, delimiter, header)
    _check_columns(path, wanted, there)
    parse = pc.ParseOptions(delimiter=delimiter)
    kinds = {name: pa.string() for name in texts} | {name: pa.float64() for name in numbers}
    convert = pc.ConvertOptions(
        include_columns=wanted, column_types=kinds, strings_can_be_null=True, null_values=list(missing_values)
    )
    read = pc.ReadOptions(column_names=there, skip_rows=int(header), block_size=_BLOCK_BYTES, use_threads=False)
    with open_stream(path) as stream:
        row = 0
        for data in pc.open_csv(pa.PythonFile(stream, "r"), read, parse, convert):
            yield Batch(path, row, data)
            row += data.num_rows


def _csv_columns(path: Path, line: bytes, delimiter: str, header: bool) -> list[str]:
    """Return the names in a CSV's first line, or numbers from 0 where it has no header."""
    if not line.strip():
        raise DataError("is empty", path=path)
    cells = next(
        csv.reader([line.decode("utf-8", "replace").rstrip("\r\n").removeprefix("\ufeff")], delimiter=delimiter)
    )
    if not header:
        return [str(i) for i in range(len(cells))]
    if len(set(cells)) != len(cells):
        raise DataError(f"names a column twice: {', '.join(cells)}", path=path)
    return cells


def _read_edge_list(path: Path, wanted: list[str], delimiter: str, numbers: Sequence[str]) -> Iterator[Batch]:
    """Lines of numbers, `#` or `%` comments skipped: integers unless a weight asks for more."""
    with open_stream(path) as stream:
        mark = stream.read(1)
    dtype = np.float64 if numbers else np.int64
    reader = NumberReader(path, dtype, delimiter=delimiter, comment="%" if mark == b"%" else "#")
    row = 0
    for chunk in reader:
        there = [str(i) for i in range(chunk.shape[1])]
        _check_columns(path, wanted, there)
        arrays = []
        for name in wanted:
            values = np.ascontiguousarray(chunk[:, int(name)])
            if name not in numbers and values.dtype.kind == "f":
                wrong = np.flatnonzero((values != np.floor(values)) | (np.abs(values) > 2**53))
                if len(wrong):
                    bad = int(wrong[0])
                    raise DataError(f"{values[bad]!r} is not an integer", path=path, row=row + bad, column=name)
                values = values.astype(np.int64)
            arrays.append(pa.array(values))
        yield Batch(path, row, pa.RecordBatch.from_arrays(arrays, names=wanted))
        row += len(chunk)
    if row == 0:
        raise DataError("is empty", path=path)


def _arrow_error(error: pa.ArrowInvalid, path: Path) -> DataError:
    """Give Arrow's message with our row count (Arrow counts from 1 and counts the header)."""
    text = str(error)
    match = re.search(r"(?:In CSV column #(\d+): )?(?:CSV parse error: )?Row #(\d+): (.*)", text, re.DOTALL)
    if match is None:
        return DataError(text, path=path)
    column = int(match.group(1)) if match.group(1) else None
    return DataError(match.group(3), path=path, row=max(0, int(match.group(2)) - 2), column=column)
