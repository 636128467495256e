"""CSV, TSV and edge lists with Arrow's parser: names, blocks of bounded size, errors that name our row and column."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.csv as pc

from configs.errors import DataError, RecipeError
from tasks.readers.columns import check_columns, check_names, first_hexadecimal, is_text, plain_batch
from tasks.readers.formulas import unguarded, unguarded_name
from tasks.readers.limits import BLOCK_BYTES, MAX_CELL_BYTES, MAX_ROW_BYTES
from tasks.readers.streams import (
    BOM,
    NO_DELIMITER,
    STREAM_ERRORS,
    decode,
    open_stream,
    read_header,
    split_cells,
    stream_error,
)


class _JoinedParts(io.RawIOBase):
    """A stream of the bytes that an iterator yields in parts."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts, self._rest = parts, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            part = next(self._parts, None)
            if part is None:
                return 0
            self._rest = memoryview(part)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


class _HexadecimalWatch(io.RawIOBase):
    """A stream of text that remembers whether it had what may be a hexadecimal number."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._last = stream, b""
        self.hexadecimal = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        part = self._stream.read(size)
        # Numbers have no x, and one byte is found ten times as fast as two.
        if not self.hexadecimal and (b"x" in part or b"X" in part):
            self.hexadecimal = re.search(rb"0[xX]", self._last + part) is not None
        self._last = part[-1:]
        return part


def check_delimiter(delimiter: str) -> None:
    """Raise RecipeError for a character that cannot stand between cells."""
    if not delimiter.isascii() or delimiter.isalnum() or delimiter in '"\r\n\0+-.':
        raise RecipeError(f'delimiter: {delimiter!r} cannot separate cells; one of , ; | or a tab ("\\t") can')


def as_texts(columns: Sequence[str]) -> pc.ConvertOptions:
    """Say that columns are read as they stand, and no others."""
    return pc.ConvertOptions(
        include_columns=list(columns), column_types=dict.fromkeys(columns, pa.string()), check_utf8=False
    )


@dataclass(frozen=True)
class TextTableFile:
    """A table in a file of text. Columns without a line of names are called `0`, `1`, ..."""

    path: Path
    delimiter: str = ","
    """Between two cells; of edge lists also the empty text: runs of blanks."""
    header: bool = True
    is_edge_list: bool = False
    """Whether lines that begin with `#` (`%`, where the first one does) are comments; there is no line of names."""
    whole_lines: bool = False
    """Of an edge list: whether each line is one cell, blanks and all. Comments have a blank behind their mark then."""
    documents: tuple[str, ...] = ()
    """Columns whose cells may be as long as a row."""
    num_columns: int | None = None
    """Of a CSV without a header: how many it has to have; None: as many as its first line."""
    quotes: bool = True
    """Whether cells may stand between quotes; else a cell is what stands between two delimiters."""

    def first_row(self) -> list[str]:
        """Return the cells of the first line, names or not. Raises DataError."""
        try:
            with open_stream(self.path) as stream:
                return read_header(stream, self.path, self.delimiter, quotes=self.quotes)[0]
        except STREAM_ERRORS as error:
            raise stream_error(error, self.path) from error

    def names(self) -> list[str]:
        """Return the columns' names. Raises DataError."""
        with self._open() as (names, _):
            return names

    def read(self, convert: pc.ConvertOptions, *, blank_lines: bool = False) -> Generator[pa.RecordBatch]:
        """Yield rows; see `read_rows`. Raises DataError, also for hexadecimal numbers in columns of integers."""
        mark = NO_DELIMITER if self.whole_lines else self.delimiter or " "
        quotes = self.quotes and (not self.is_edge_list or bool(self.delimiter and not self.whole_lines))
        most = MAX_ROW_BYTES if self.whole_lines else MAX_CELL_BYTES
        options: dict[str, Any] = {"quotes": quotes, "most_bytes": most, "blank_lines": blank_lines}
        options["documents"] = self.documents
        with self._open() as (names, stream):
            watched, is_checked, is_first = _HexadecimalWatch(stream), False, True
            for rows in read_rows(self.path, names, watched, mark, convert, **options):
                if watched.hexadecimal and not is_checked:  # a text holds it, or what Arrow took for an integer
                    is_checked = True
                    self._refuse_hexadecimal([field.name for field in rows.schema if pa.types.is_integer(field.type)])
                if self.is_edge_list and not self.whole_lines:
                    columns = rows.columns
                    columns = [compute.utf8_trim_whitespace(one) if is_text(one.type) else one for one in columns]
                    rows = pa.RecordBatch.from_arrays(columns, names=rows.schema.names)
                    if is_first:
                        self._refuse_names(rows, convert)
                is_first = False
                yield rows

    @contextmanager
    def _open(self) -> Iterator[tuple[list[str], IO[bytes]]]:
        if not self.is_edge_list and self.num_columns is None:
            with open_table(self.path, self.delimiter, self.header, quotes=self.quotes) as opened:
                yield opened
            return
        try:
            with open_stream(self.path) as stream:
                if self.num_columns is not None:
                    yield [str(place) for place in range(self.num_columns)], stream
                    return
                blocks = self._edge_list_blocks(stream)
                first = next((block for block in blocks if block.strip()), None)
                if first is None:
                    raise DataError("is empty", path=self.path)
                line = re.split(rb"[\r\n]", first.lstrip(b"\r\n"), maxsplit=1)[0]
                if self.whole_lines:
                    count = 1
                elif self.delimiter:
                    count = len(split_cells(decode(line, self.path), self.path, self.delimiter))
                else:
                    count = line.count(b" ") + 1
                names = [str(place) for place in range(count)]
                check_names(names, self.path)
                parts = _JoinedParts(itertools.chain([first], blocks))
                yield names, io.BufferedReader(parts, BLOCK_BYTES)
        except STREAM_ERRORS as error:
            raise stream_error(error, self.path) from error

    def _edge_list_blocks(self, stream: IO[bytes]) -> Iterator[bytes]:
        """Yield whole lines without comments; where runs of blanks separate cells, with one blank between two."""
        mark = b"%" if stream.peek(8).removeprefix(BOM)[:1] == b"%" else b"#"  # type: ignore[attr-defined]
        comment = rb"(?m)^[ \t]*(?:%b(?:[ \t][^\n]*)?)?\r?\n" if self.whole_lines else rb"(?m)^%b[^\n]*\n"
        comments = re.compile(comment % mark)
        rest, is_start = b"", True
        while block := stream.read(BLOCK_BYTES):
            block, is_start = block.removeprefix(BOM) if is_start else block, False
            lines, newline, after = (rest + block).rpartition(b"\n")
            rest = after
            if len(rest) > MAX_ROW_BYTES:
                raise DataError(f"has a line of more than {MAX_ROW_BYTES:,} bytes", path=self.path)
            if newline:
                yield self._cleaned(lines + newline, mark, comments)
        if rest:
            yield self._cleaned(rest + b"\n", mark, comments)

    def _cleaned(self, lines: bytes, mark: bytes, comments: re.Pattern[bytes]) -> bytes:
        if not self.delimiter and not self.whole_lines:
            lines = lines.replace(b"\t", b" ")
            while b"  " in lines:
                lines = lines.replace(b"  ", b" ")
            lines = lines.replace(b" \n", b"\n").replace(b" \r\n", b"\r\n").replace(b"\n ", b"\n").removeprefix(b" ")
        return comments.sub(b"", lines) if mark in lines or self.whole_lines else lines

    def _refuse_hexadecimal(self, columns: Sequence[str]) -> None:
        """Raise DataError for the first hexadecimal number in columns that Arrow read as integers.

        Arrow takes `0x1F` for 31, and nobody would know: a name is no number, and the two must not meet.
        """
        row = 0
        for rows in self.read(as_texts(columns)) if columns else ():
            for name, cells in zip(columns, rows.columns, strict=True):
                place = first_hexadecimal(cells)
                if place is not None:
                    raise DataError(
                        f"{cells[place].as_py()[:40]!r} is hexadecimal; of ids dataset.text_ids=true reads texts; "
                        "write numbers as decimals",
                        path=self.path,
                        row=row + place,
                        column=name,
                    )
            row += rows.num_rows

    def _refuse_names(self, rows: pa.RecordBatch, convert: pc.ConvertOptions) -> None:
        """Raise DataError where the first line of an edge list holds a text over numbers: names, and no edge."""
        for name, cells in zip(rows.schema.names, rows.columns, strict=True):
            if name in convert.column_types or not is_text(cells.type) or len(cells) < 2:
                continue
            try:
                cells.slice(1).cast(pa.float64())
            except pa.ArrowInvalid:
                continue
            raise DataError(
                f"{cells[0].as_py()[:40]!r} is above numbers; if the first line names the columns, begin it with # "
                "or say format: csv",
                path=self.path,
                row=0,
                column=name,
            )


@contextmanager
def open_table(
    path: Path, delimiter: str, header: bool, *, quotes: bool = True
) -> Iterator[tuple[list[str], IO[bytes]]]:
    """Open a CSV; give the names of its columns and its rows as a stream.

    Without a header, columns are called `0`, `1`, ...

    Raises DataError: see `tasks.readers.streams`; a name stands twice. Damage found later is reported likewise.
    """
    try:
        with open_stream(path) as stream:
            cells, line = read_header(stream, path, delimiter, quotes=quotes)
            if header:
                cells = [unguarded_name(cell) for cell in cells]
                check_names(cells, path)
                yield cells, stream
            else:  # the first line was looked at and is data
                parts = _JoinedParts(itertools.chain([line], iter(lambda: stream.read(BLOCK_BYTES), b"")))
                yield [str(place) for place in range(len(cells))], io.BufferedReader(parts, BLOCK_BYTES)
    except STREAM_ERRORS as error:
        raise stream_error(error, path) from error


def read_rows(
    path: Path,
    names: list[str],
    stream: IO[bytes] | io.RawIOBase,
    delimiter: str,
    convert: pc.ConvertOptions,
    *,
    quotes: bool = True,
    most_bytes: int = MAX_CELL_BYTES,
    documents: Sequence[str] = (),
    blank_lines: bool = False,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an opened table in batches of plain columns. Raises DataError naming row and column.

    Blank lines are left out and not counted, unless `blank_lines` says that they are rows; texts lose what `guarded`
    put before them. A cell may hold line ends between quotes, and `most_bytes` at most, those of
    `documents` as many as a row.
    """
    check_columns(path, convert.include_columns, names)
    parse = pc.ParseOptions(
        delimiter=delimiter,
        quote_char='"' if quotes else False,
        newlines_in_values=quotes,
        ignore_empty_lines=not blank_lines,
    )
    read = pc.ReadOptions(column_names=names, block_size=BLOCK_BYTES, use_threads=False)
    row = 0
    try:
        for data in pc.open_csv(pa.PythonFile(stream, "r"), read, parse, convert):
            plain = plain_batch(data, path, row, most_bytes, documents)
            yield pa.RecordBatch.from_arrays([unguarded(cells) for cells in plain.columns], names=plain.schema.names)
            row += data.num_rows
    except pa.ArrowInvalid as error:
        if str(error) != "Empty CSV file":
            raise _arrow_error(error, path, names, row) from error
    except MemoryError as error:
        raise DataError(f"cannot be read: it needs more memory than there is ({error})", path=path) from error


def _arrow_error(error: pa.ArrowInvalid, path: Path, names: Sequence[str], row: int) -> DataError:
    """Give Arrow's message with our row count (Arrow counts from 1) and the column's name."""
    text = str(error)
    if "straddling" in text:
        where = f" after row {row - 1}" if row else ""
        return DataError(
            f'has a row of more than {MAX_ROW_BYTES:,} bytes, or a quote (") that is never closed{where}', path=path
        )
    match = re.search(r"(?:In CSV column #(\d+): )?(?:CSV parse error: )?Row #(\d+): (.*)", text, re.DOTALL)
    if match is None:
        return DataError(text, path=path)
    column = names[int(match.group(1))] if match.group(1) else None
    return DataError(_in_our_words(match.group(3)), path=path, row=int(match.group(2)) - 1, column=column)


def _in_our_words(text: str) -> str:
    """Say what Arrow says of a row or cell."""
    if ragged := re.match(r"Expected (\d+) columns, got (\d+)(?:: (.*))?", text, re.DOTALL):
        expected, count, row = ragged.groups()
        return f"the row has {count} columns, the others have {expected}" + (f": {row[:40]!r}" if row else "")
    if cell := re.match(r"CSV conversion error to (\S+): invalid value '(.*)'", text, re.DOTALL):
        kind, value = cell.groups()
        if not value:
            return "the cell is empty"
        if kind.startswith("int") and re.fullmatch(r"-?\d+", value):
            return f"{value[:40]!r} does not fit {kind}"
        what = {"double": "a number", "int32": "an integer", "int64": "an integer", "null": "empty"}.get(kind, kind)
        return f"{value[:40]!r} is not {what}"
    return text
