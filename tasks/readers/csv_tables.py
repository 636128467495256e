"""CSV and TSV with Arrow's parser: names, blocks of bounded size, and errors that name our row and column."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.csv as pc

from configs.errors import DataError, RecipeError
from tasks.readers.columns import check_columns, check_names, first_hexadecimal, plain_batch
from tasks.readers.formulas import unguarded, unguarded_name
from tasks.readers.limits import BLOCK_BYTES, MAX_CELL_BYTES, MAX_ROW_BYTES
from tasks.readers.streams import STREAM_ERRORS, open_stream, read_header, stream_error


class _PrependedStream(io.RawIOBase):
    """Some bytes, then a stream: a first line that was looked at and is data comes once more."""

    def __init__(self, first: bytes, stream: IO[bytes]) -> None:
        self._first, self._stream = first, stream

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer from whichever comes next."""
        part = self._first[: len(buffer)]
        self._first = self._first[len(part) :]
        part = part or self._stream.read(len(buffer))
        buffer[: len(part)] = part
        return len(part)


def check_delimiter(delimiter: str) -> None:
    """Raise RecipeError for a character that cannot stand between cells."""
    if len(delimiter) != 1 or not delimiter.isascii() or delimiter.isalnum() or delimiter in '"\r\n\0+-.':
        raise RecipeError(f'delimiter: {delimiter!r} cannot separate cells; one of , ; | or a tab ("\\t") can')


class Watched(io.RawIOBase):
    """A stream of text that remembers whether it had what may be a hexadecimal number."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._last = stream, b""
        self.hexadecimal = False

    def readable(self) -> bool:
        """It is."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes."""
        part = self._stream.read(size)
        # Numbers have no x, and one byte is found ten times as fast as two.
        if not self.hexadecimal and (b"x" in part or b"X" in part):
            self.hexadecimal = re.search(rb"0[xX]", self._last + part) is not None
        self._last = part[-1:]
        return part


def refuse_hexadecimal(path: Path, columns: Sequence[str], delimiter: str, header: bool) -> None:
    """Raise DataError for the first hexadecimal number in columns that Arrow read as integers.

    Arrow takes `0x1F` for 31, and nobody would know: a name is no number, and the two must not meet.
    """
    with open_table(path, delimiter, header) as (names, stream):
        row = 0
        for data in read_rows(path, names, stream, delimiter, as_texts(columns)):
            for name, cells in zip(columns, data.columns, strict=True):
                place = first_hexadecimal(cells)
                if place is not None:
                    raise DataError(
                        f"{cells[place].as_py()[:40]!r} is hexadecimal; of ids dataset.text_ids=true reads texts; "
                        "write numbers as decimals",
                        path=path,
                        row=row + place,
                        column=name,
                    )
            row += data.num_rows


def as_texts(columns: Sequence[str]) -> pc.ConvertOptions:
    """Say that columns are read as they stand, and no others."""
    return pc.ConvertOptions(
        include_columns=list(columns), column_types=dict.fromkeys(columns, pa.string()), check_utf8=False
    )


@contextmanager
def open_table(path: Path, delimiter: str, header: bool) -> Iterator[tuple[list[str], IO[bytes]]]:
    """Open a CSV; give the names of its columns and its rows as a stream.

    Without a header, columns are called `0`, `1`, ...

    Raises:
        DataError: see `tasks.readers.streams`; a name stands twice. Damage found later is reported likewise.
    """
    try:
        with open_stream(path) as stream:
            cells, line = read_header(stream, path, delimiter)
            if header:
                cells = [unguarded_name(cell) for cell in cells]
                check_names(cells, path)
                yield cells, stream
            else:
                yield (
                    [str(i) for i in range(len(cells))],
                    io.BufferedReader(_PrependedStream(line, stream), BLOCK_BYTES),
                )
    except STREAM_ERRORS as error:
        raise stream_error(error, path) from error


def read_rows(
    path: Path,
    names: list[str],
    stream: IO[bytes],
    delimiter: str,
    convert: pc.ConvertOptions,
    *,
    quotes: bool = True,
    most_bytes: int = MAX_CELL_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of an opened table in batches of plain columns. Raises DataError naming row and column.

    Blank lines are left out and not counted; texts lose what `guarded` put before them. A cell may hold line ends
    between quotes, and `most_bytes` at most.
    """
    check_columns(path, convert.include_columns, names)
    parse = pc.ParseOptions(delimiter=delimiter, quote_char='"' if quotes else False, newlines_in_values=quotes)
    read = pc.ReadOptions(column_names=names, block_size=BLOCK_BYTES, use_threads=False)
    row = 0
    try:
        for data in pc.open_csv(pa.PythonFile(stream, "r"), read, parse, convert):
            plain = plain_batch(data, path, row, most_bytes)
            yield pa.RecordBatch.from_arrays([unguarded(cells) for cells in plain.columns], names=plain.schema.names)
            row += data.num_rows
    except pa.ArrowInvalid as error:
        if str(error) != "Empty CSV file":
            raise _arrow_error(error, path, names, row) from error
    except MemoryError as error:
        raise DataError(f"cannot be read: it asks for more memory than there is ({error})", path=path) from error


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
    """Say of a row or cell what the reader of numbers says of it."""
    if ragged := re.match(r"Expected (\d+) columns, got (\d+)(?:: (.*))?", text, re.DOTALL):
        expected, found, row = ragged.groups()
        return f"the row has {found} columns, the others have {expected}" + (f": {row[:40]!r}" if row else "")
    if cell := re.match(r"CSV conversion error to (\S+): invalid value '(.*)'", text, re.DOTALL):
        kind, value = cell.groups()
        what = {"double": "not a number", "int64": "not an integer", "null": "not empty"}.get(kind, f"no {kind}")
        return f"{value[:40]!r} is {what}"
    return text
