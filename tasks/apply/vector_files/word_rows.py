"""Vectors in word2vec's formats, text (`.txt`) and binary (`.bin`): a line of two numbers, then a word and its vector.

Nothing is believed of the first line before the file's size agrees with it, and no line is read further than such a
line can be.
"""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.source_files import check_file, open_file
from tasks.readers.limits import BLOCK_BYTES, MAX_CELL_BYTES
from tasks.readers.npy import NpyHeader, check_row
from tasks.readers.streams import decode
from tasks.storage.graph_store import Array

_NUMBER_BYTES = 4
_NUMBER_CHARACTERS = 32  # no float takes more as text
_FIRST_LINE = re.compile(rb"(\d{1,12})[ \t](\d{1,9})[ \t]*\r?\n")


class WordRows(ABC):
    """A file of words with their vectors; the words are the ids."""

    column: str | None = None
    id_type: pa.DataType = pa.string()

    def __init__(self, path: Path) -> None:
        """Read the first line. Raises DataError: it is another one, or the file is shorter than it says."""
        self.path = path
        self.ids: tuple[Path, str | None] = (path, None)
        size = check_file(path).st_size
        with self._opened() as (stream, found):
            self.num_rows, self.dim = (int(number) for number in found.groups())
            left = size - stream.tell()
        check_row(NpyHeader((self.num_rows, self.dim), np.dtype(np.float32), fortran=False), path)
        least = self.num_rows * self._least_bytes()
        if least > left + 1:  # the last line may have no end
            raise DataError(
                f"is cut off or damaged: its first line says {self.num_rows:,} vectors of {self.dim:,} numbers, which "
                f"take {least:,} bytes at least, and {left:,} are there",
                path=path,
            )

    @abstractmethod
    def _least_bytes(self) -> int:
        """Return how many bytes a row takes at least."""

    @abstractmethod
    def rows(self, most: int) -> Iterator[tuple[pa.Array, Array]]:
        """Yield ids and vectors (n, dim), so many at a time at most. Raises DataError for damage."""

    def names(self, most: int) -> Iterator[pa.Array]:
        """Yield the ids."""
        return (ids for ids, _ in self.rows(most))

    @contextmanager
    def _opened(self) -> Iterator[tuple[IO[bytes], re.Match[bytes]]]:
        """Open a stream after the first line; give it with that line."""
        with io.BufferedReader(cast(io.RawIOBase, open_file(self.path)), BLOCK_BYTES) as stream:
            found = _FIRST_LINE.fullmatch(stream.readline(64))
            if found is None:
                raise DataError(
                    "does not begin as word2vec's files do, with a line of two numbers: of its words, and of the "
                    "numbers of each (5000 128)",
                    path=self.path,
                )
            yield stream, found

    def _words(self, words: list[bytes], first: int) -> pa.Array:
        """Return words as texts. Raises DataError naming the row of one that is none."""
        texts = [decode(word, self.path, row=first + place) for place, word in enumerate(words)]
        if "" in texts:
            raise DataError("has no word before its numbers", path=self.path, row=first + texts.index(""))
        return pa.array(texts, pa.string())

    def _refuse_more(self) -> DataError:
        return DataError(
            f"goes on after the {self.num_rows:,} vectors that its first line says; write it again", path=self.path
        )


class TextRows(WordRows):
    """word2vec's text format: numbers apart by blanks, a line for each word."""

    def _least_bytes(self) -> int:
        return 2 * (self.dim + 1)

    def rows(self, most: int) -> Iterator[tuple[pa.Array, Array]]:
        """Yield ids and vectors."""
        first = 0
        with self._opened() as (stream, _):
            while lines := self._lines(stream, first, most):
                if first + len(lines) > self.num_rows:
                    raise self._refuse_more()
                yield self._parsed(lines, first)
                first += len(lines)
        if first < self.num_rows:
            raise DataError(
                f"is cut off: its first line says {self.num_rows:,} vectors, and {first:,} are there", path=self.path
            )

    def _lines(self, stream: IO[bytes], first: int, most: int) -> list[bytes]:
        """Return the next lines that are not blank, without their ends."""
        lines: list[bytes] = []
        read, longest = 0, MAX_CELL_BYTES + _NUMBER_CHARACTERS * self.dim
        while len(lines) < most and read < BLOCK_BYTES:
            line = stream.readline(longest + 1)
            if len(line) > longest:
                why = f"has more than {longest:,} bytes, too many for a word and {self.dim:,} numbers"
                raise DataError(why, path=self.path, row=first + len(lines))
            if not line:
                break
            read += len(line)
            if line.strip():
                lines.append(line.strip())
        return lines

    def _parsed(self, lines: list[bytes], first: int) -> tuple[pa.Array, Array]:
        cells = compute.ascii_split_whitespace(self._words(lines, first))
        width = self.dim + 1
        counts = np.asarray(compute.list_value_length(cells))
        wrong = np.flatnonzero(counts != width)
        if len(wrong):
            row = int(wrong[0])
            raise DataError(
                f"has {counts[row]:,} cells, {width:,} are needed: a word without blanks and {self.dim:,} numbers",
                path=self.path,
                row=first + row,
            )
        flat = cells.flatten()
        place = np.arange(len(flat)).reshape(-1, width)
        numbers = flat.take(pa.array(place[:, 1:].ravel()))
        try:
            values = np.asarray(numbers.cast(pa.float64()))
        except pa.ArrowInvalid:
            raise self._no_number(numbers, first) from None
        return flat.take(pa.array(place[:, 0])), values.reshape(-1, self.dim)

    def _no_number(self, cells: pa.Array, first: int) -> DataError:
        """Return the error of the first cell that is no number."""
        for place, cell in enumerate(cells):
            try:
                cell.cast(pa.float64())
            except pa.ArrowInvalid:
                row = first + place // self.dim
                return DataError(f"{cell.as_py()[:100]!r} is no number", path=self.path, row=row)
        raise AssertionError


class BinaryRows(WordRows):
    """word2vec's binary format: a word, a blank, float32 numbers of the lowest byte first, perhaps an end of line."""

    def _least_bytes(self) -> int:
        return 2 + _NUMBER_BYTES * self.dim

    def rows(self, most: int) -> Iterator[tuple[pa.Array, Array]]:
        """Yield ids and vectors."""
        size, first = _NUMBER_BYTES * self.dim, 0
        words: list[bytes] = []
        parts: list[bytes] = []
        with self._opened() as (stream, _):
            data, at = b"", 0
            while first + len(words) < self.num_rows:
                end = data.find(b" ", at)
                if (len(data) if end < 0 else end) - at > MAX_CELL_BYTES:
                    why = f"has a word of more than {MAX_CELL_BYTES:,} bytes: is this word2vec's binary format?"
                    raise DataError(why, path=self.path, row=first + len(words))
                if end < 0 or end + 1 + size > len(data):
                    data, at = self._more(stream, data[at:], first + len(words)), 0
                    continue
                words.append(data[at:end].lstrip(b"\n"))  # the end of the line before
                parts.append(data[end + 1 : end + 1 + size])
                at = end + 1 + size
                if len(words) == most or first + len(words) == self.num_rows:
                    vectors = np.frombuffer(b"".join(parts), "<f4").reshape(-1, self.dim)
                    yield self._words(words, first), vectors
                    first, words, parts = first + len(words), [], []
            if (data[at:] + stream.read(2)).strip(b"\n"):
                raise self._refuse_more()

    def _more(self, stream: IO[bytes], data: bytes, row: int) -> bytes:
        more = stream.read(BLOCK_BYTES)
        if not more:
            raise DataError("is cut off: the data ends too early; write it again", path=self.path, row=row)
        return data + more
