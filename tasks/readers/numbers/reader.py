"""Numbers from CSV files and edge lists, compressed or not, chunk by chunk in bounded memory.

For files that hold numbers only, without names and quotes; tables with them are Arrow's (`tasks.readers.csv_tables`).
Arrow takes twice as long for edges and 1.4 times for features (`python -m benchmarks.prepare`, which compares the two),
and what it takes for a number is not what is meant here: `0x1F` is 31 to it, and `1e400` infinite.

One thread decompresses (isal's inflate, which releases the interpreter lock) while the caller's parses. On 12 M edges
this took a third of the CPU time of pandas, and half as long again on two cores (Zen 5, 2026).
"""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.readers.limits import MAX_COLUMNS, MAX_GRAPHS
from tasks.readers.limits import MAX_ROW_BYTES as _MAX_LINE_BYTES
from tasks.readers.numbers import number_parsing as parsing
from tasks.readers.streams import BOM, STREAM_ERRORS, open_stream, stream_error

_BLOCK_BYTES = 2 << 20
_NUM_BUFFERS = 4
_MAX_SLOW = 1024
_MAX_NUMBER_CHARS = 4096  # of digits that decide how the last bit is rounded
_NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


class _Blocks:
    """Blocks of a decompressed file, read ahead by a thread into a few reused buffers.

    Each block leaves `_MAX_LINE_BYTES` free in front, for the unfinished line of the block before.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._full: queue.Queue[tuple[bytearray, int] | Exception] = queue.Queue()
        self._free: queue.Queue[bytearray | None] = queue.Queue()
        self._thread = threading.Thread(target=self._read, daemon=True, name=f"read {path.name}")

    def __enter__(self) -> _Blocks:
        self._stream = open_stream(self._path)
        for _ in range(_NUM_BUFFERS):
            self._free.put(bytearray(_MAX_LINE_BYTES + _BLOCK_BYTES + 1 + parsing.PADDING))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._free.put(None)
        self._thread.join()
        self._stream.close()

    def next(self) -> tuple[bytearray, int]:
        """Return a buffer and the number of bytes in its block; 0 at the end."""
        item = self._full.get()
        if isinstance(item, Exception):
            raise item
        return item

    def give_back(self, buffer: bytearray) -> None:
        self._free.put(buffer)

    def _read(self) -> None:
        try:
            while (buffer := self._free.get()) is not None:
                with memoryview(buffer)[_MAX_LINE_BYTES : _MAX_LINE_BYTES + _BLOCK_BYTES] as view:
                    size, count = 0, 1
                    while count and size < _BLOCK_BYTES:
                        with view[size:] as rest:
                            count = self._stream.readinto(rest)  # type: ignore[attr-defined]
                        size += count
                self._full.put((buffer, size))
                if size == 0:
                    return
        except Exception as error:
            self._full.put(error)


class NumberReader:
    """Rows of numbers of one file.

    Iterating yields arrays (rows, num_columns) of `dtype`; `num_columns` is that of the first line unless given.
    """

    def __init__(
        self,
        path: Path,
        dtype: Any,
        *,
        num_columns: int | None = None,
        delimiter: str = ",",
        comment: str = "",
        missing: bool = False,
    ) -> None:
        """`delimiter` is a character, or "" for runs of blanks; `missing` takes empty cells and nan as NaN (floats).

        Integers are digits behind at most a minus, within the dtype; floats are decimals with or without an exponent,
        rounded as `float()` rounds them, and finite. Else nothing is a number: not `0x1F`, `1_0`, `inf` or ` 1`.

        Raises:
            DataError: on iteration, naming file, row (from 0, blank lines and comments not counted) and column.
        """
        self.path, self.dtype, self.num_columns = path, np.dtype(dtype), num_columns
        self.num_rows = 0
        self._delimiter = ord(delimiter) if delimiter else 0
        self._comment = ord(comment) if comment else 0
        self._missing = missing

    def __iter__(self) -> Iterator[Array]:
        """Yield chunks."""
        try:
            with _Blocks(self.path) as blocks:
                yield from self._chunks(blocks)
        except STREAM_ERRORS as error:
            raise stream_error(error, self.path) from error

    def _chunks(self, blocks: _Blocks) -> Iterator[Array]:
        carry, first = b"", True
        while True:
            buffer, size = blocks.next()
            start, end = _MAX_LINE_BYTES - len(carry), _MAX_LINE_BYTES + size
            buffer[start:_MAX_LINE_BYTES] = carry
            if first and buffer.startswith(BOM, start):
                start += len(BOM)
            first = False
            if size == 0:
                if not carry:
                    return
                buffer[end] = 10  # the last line has no newline
                end = stop = end + 1
            else:
                stop = buffer.rfind(b"\n", start, end) + 1 or start
            if end - stop > _MAX_LINE_BYTES:
                where = f" after row {self.num_rows - 1}" if self.num_rows else ""
                raise DataError(f"has a line of more than {_MAX_LINE_BYTES:,} bytes{where}", path=self.path)
            if stop > start:
                rows = self._parse(buffer, start, stop)
                self.num_rows += len(rows)
                if len(rows):
                    yield rows
            carry = bytes(buffer[stop:end])
            blocks.give_back(buffer)
            if size == 0:
                return

    def _parse(self, buffer: bytearray, start: int, stop: int) -> Array:
        """Parse the lines buffer[start:stop] into a new array."""
        data = np.frombuffer(buffer, np.uint8)
        if self.num_columns is None:
            self.num_columns = _columns_in(bytes(buffer[start:stop]), self._delimiter, self._comment, self.path)
            if self.num_columns is None:
                return np.empty((0, 0), self.dtype)
        # A row takes a byte a cell or more: a wide first line before many short ones asks for no more memory than that.
        most = (stop - start) // self.num_columns + 1
        shape = (min(parsing.count_lines(data, start, stop), most), self.num_columns)
        if self.dtype.kind == "i":
            out = np.empty(shape, self.dtype, order="F")  # few columns, wanted one by one
            result = parsing.parse_ints(data, start, stop, out, self._delimiter, self._comment)
            rows, column, position, code = result
        else:
            out = np.empty(shape, self.dtype)
            rows, column, position, code = self._parse_floats(data, start, stop, out)
        if code != parsing.DONE:
            raise self._error(bytes(buffer[position:stop]), rows, column, code)
        return out[:rows]

    def _parse_floats(self, data: Array, start: int, stop: int, out: Array) -> tuple[int, int, int, int]:
        """Run the kernel; cells that it cannot round are given to Python's float()."""
        done = 0
        # At least a row's: then each turn gets on.
        slow = np.empty((max(_MAX_SLOW, out.shape[1]), 3), np.int64)
        while True:
            rows, column, position, code, num_slow = parsing.parse_floats(
                data, start, stop, out[done:], self._delimiter, self._comment, self._missing, slow
            )
            for row, slow_column, at in slow[:num_slow].tolist():
                out[done + row, slow_column] = self._slow_float(data, at, stop, done + row, slow_column)
            done += rows
            if code != parsing.SLOW_FULL:
                return done, column, position, code
            # So many cells need Python that the list was full: go on from the row that was not finished.
            start = data[start:position].tobytes().rfind(b"\n") + 1 + start

    def _slow_float(self, data: Array, at: int, stop: int, row: int, column: int) -> float:
        text = self._cell(data[at : min(stop, at + _MAX_NUMBER_CHARS + 1)].tobytes())
        if len(text) > _MAX_NUMBER_CHARS:
            raise DataError(
                f"the number has more than {_MAX_NUMBER_CHARS:,} characters",
                path=self.path,
                row=self.num_rows + row,
                column=column,
            )
        if not _NUMBER.fullmatch(text):  # the kernel gave up before it saw the rest; float() takes 1_0
            raise self._error(text, row, column, parsing.BAD_NUMBER)
        value = float(text)
        with np.errstate(over="ignore"):
            if not np.isfinite(self.dtype.type(value)):
                raise self._error(text, row, column, parsing.OVERFLOW)
        return value

    def _cell(self, text: bytes) -> bytes:
        line = text.splitlines()[0] if text else b""
        cells = line.split(None if self._delimiter == 0 else bytes([self._delimiter]), 1)
        return cells[0] if cells else line

    def _error(self, text: bytes, row: int, column: int, code: int) -> DataError:
        place: dict[str, Any] = {"path": self.path, "row": self.num_rows + row}
        if re.match(rb"[^\r\n]*\r(?!\n)", text):
            why = "the line has a carriage return alone, as lines on old Macs end; write the file anew: tr '\\r' '\\n'"
            return DataError(why, **place)
        if text.lstrip(b" \t").startswith(b"\0"):
            why = "the row has a NUL byte, which no text has; write the file anew, or take them out: tr -d '\\000'"
            return DataError(why, **place, column=column)
        cell = self._cell(text)[:40].decode("utf-8", "replace")
        what = "an integer" if self.dtype.kind == "i" else "a number"
        message = {
            parsing.BAD_NUMBER: f"{cell!r} is not {what}",
            parsing.TOO_FEW: f"the row has {column + 1} columns, the others have {self.num_columns}",
            parsing.TOO_MANY: f"the row has more than {self.num_columns} columns, the others have {self.num_columns}",
            parsing.EMPTY_CELL: "the cell is empty",
            parsing.NOT_FINITE: f"{cell!r} is not a finite number",
            parsing.OVERFLOW: f"{cell!r} does not fit {self.dtype.name}",
        }[code]
        return DataError(message, **place, column=column)


def comment_mark(path: Path) -> str:
    """Return the character that begins comments in an edge list: `%` where its first line does, else `#`."""
    with open_stream(path) as stream:
        return "%" if stream.peek(8).removeprefix(BOM)[:1] == b"%" else "#"  # type: ignore[attr-defined]


def count_columns(path: Path, delimiter: str) -> int:
    """Return how many columns the first row of an edge list has; 0 where there is none. Raises DataError."""
    try:
        comment = comment_mark(path)
        with open_stream(path) as stream:
            block = stream.read(_BLOCK_BYTES).removeprefix(BOM)
    except STREAM_ERRORS as error:
        raise stream_error(error, path) from error
    return _columns_in(block, ord(delimiter) if delimiter else 0, ord(comment), path) or 0


def _columns_in(block: bytes, delimiter: int, comment: int, path: Path) -> int | None:
    """Return the number of columns of the first line that is neither blank nor a comment (`comment` 0: none)."""
    mark = re.escape(bytes([comment])) if comment else b""
    line = re.search(rb"^[ \t\r]*[^\s" + mark + rb"][^\r\n]*", block, re.MULTILINE)
    if line is None:
        return None
    count = len(line[0].split(bytes([delimiter]) if delimiter else None))
    if count > MAX_COLUMNS:
        raise DataError(f"has more than {MAX_COLUMNS:,} columns", path=path)
    return count


def read_numbers(path: Path, dtype: Any, *, most: int = MAX_GRAPHS, **options: Any) -> Array:
    """Return a whole file as (rows, columns), for files that fit memory; other options are those of NumberReader.

    Raises:
        DataError: as NumberReader does, or there are more than `most` rows.
    """
    reader = NumberReader(path, dtype, **options)
    chunks = []
    for chunk in reader:
        if reader.num_rows > most:
            raise DataError(f"has more than {most:,} rows", path=path)
        chunks.append(chunk)
    return np.concatenate(chunks) if chunks else np.empty((0, reader.num_columns or 0), dtype)
