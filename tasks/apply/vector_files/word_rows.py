"""Vectors in word2vec's formats, text (`.txt`) and binary (`.bin`): a line of two numbers, then a word and its vector.

Nothing is believed of the first line before the file's size agrees with it, and no line is read further than such a
line can be.
"""

from __future__ import annotations

import io
import re
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from configs.source_files import check_file, open_file
from tasks.apply.vector_files.rows import VectorRows
from tasks.arrays import Array
from tasks.readers.arrays.npy import NpyHeader, check_row
from tasks.readers.limits import BLOCK_BYTES, MAX_CELL_BYTES
from tasks.readers.streams import decode

_NUMBER_CHARACTERS = 32  # no float takes more as text
_FIRST_LINE = re.compile(rb"(\d{1,12})[ \t](\d{1,9})[ \t]*\r?\n")


class WordRows(VectorRows):
    """A file of words with their vectors; the words are the ids."""

    _least_bytes: int
    """That a number takes."""

    def __init__(self, path: Path) -> None:
        """Read the first line. Raises DataError: it is another one, or the file is shorter than it says."""
        self.path = path
        self.ids, self.id_type = (path, None), pa.string()
        size = check_file(path).st_size
        with self._opened() as (stream, numbers):
            self.num_rows, self.dim = (int(number) for number in numbers.groups())
            left = size - stream.tell()
        check_row(NpyHeader((self.num_rows, self.dim), np.dtype(np.float32), fortran=False), path)
        least = self.num_rows * (2 + self._least_bytes * self.dim)  # a letter, a blank or an end, and numbers
        if least > left + 1:  # the last line may have no end
            raise DataError(
                f"is cut off or damaged: its first line says {self.num_rows:,} vectors of {self.dim:,} numbers, which "
                f"take {least:,} bytes at least, and {left:,} are there",
                path=path,
            )

    @abstractmethod
    def _words(self, stream: IO[bytes]) -> Iterator[tuple[bytes, Array]]:
        """Yield words and vectors, (dim,) each, more than the first line says where there are more."""

    def names(self, most: int) -> Iterator[pa.Array]:
        """Yield the ids."""
        return (ids for ids, _ in self.rows(most))

    def rows(self, most: int) -> Iterator[tuple[pa.Array, Array]]:
        """Yield ids and vectors."""
        texts: list[str] = []
        vectors: list[Array] = []
        with self._opened() as (stream, _):
            for row, (word, vector) in enumerate(self._words(stream)):
                if row == self.num_rows:
                    why = f"goes on after the {row:,} vectors that its first line says; write it again"
                    raise DataError(why, path=self.path)
                texts.append(decode(word, self.path, row=row))
                if not texts[-1]:
                    raise DataError("has no word before its numbers", path=self.path, row=row)
                vectors.append(vector)
                if len(texts) == most or row == self.num_rows - 1:
                    yield pa.array(texts, pa.string()), np.stack(vectors)
                    texts, vectors = [], []

    @contextmanager
    def _opened(self) -> Iterator[tuple[IO[bytes], re.Match[bytes]]]:
        """Open a stream after the first line; give it with that line."""
        with io.BufferedReader(cast(io.RawIOBase, open_file(self.path)), BLOCK_BYTES) as stream:
            numbers = _FIRST_LINE.fullmatch(stream.readline(64))
            if numbers is None:
                raise DataError(
                    "does not begin as word2vec's files do, with a line of two numbers: of its words, and of the "
                    "numbers of each (5000 128)",
                    path=self.path,
                )
            yield stream, numbers


class TextRows(WordRows):
    """word2vec's text format: numbers apart by blanks, a line for each word."""

    _least_bytes = 2

    def _words(self, stream: IO[bytes]) -> Iterator[tuple[bytes, Array]]:
        row, longest = 0, MAX_CELL_BYTES + _NUMBER_CHARACTERS * self.dim
        while line := stream.readline(longest + 1):
            if len(line) > longest:
                why = f"has more than {longest:,} bytes, too many for a word and {self.dim:,} numbers"
                raise DataError(why, path=self.path, row=row)
            if cells := line.split():
                yield cells[0], self._numbers(cells, row)
                row += 1
        if row < self.num_rows:
            why = f"is cut off: its first line says {self.num_rows:,} vectors, and {row:,} are there"
            raise DataError(why, path=self.path)

    def _numbers(self, cells: list[bytes], row: int) -> Array:
        if len(cells) != self.dim + 1:
            needed = f"{self.dim + 1:,} are needed: a word without blanks and {self.dim:,} numbers"
            raise DataError(f"has {len(cells):,} cells, {needed}", path=self.path, row=row)
        numbers = np.empty(self.dim)
        for place, cell in enumerate(cells[1:]):
            try:
                numbers[place] = float(cell)
            except ValueError:
                text = cell.decode("utf-8", "replace")[:100]
                raise DataError(f"{text!r} is no number", path=self.path, row=row) from None
        return numbers


class BinaryRows(WordRows):
    """word2vec's binary format: a word, a blank, float32 numbers of the lowest byte first, perhaps an end of line."""

    _least_bytes = 4

    def _words(self, stream: IO[bytes]) -> Iterator[tuple[bytes, Array]]:
        size, row = 4 * self.dim, 0
        data, at = b"", 0
        while row < self.num_rows:
            end = data.find(b" ", at)
            if (len(data) if end < 0 else end) - at > MAX_CELL_BYTES:
                why = f"has a word of more than {MAX_CELL_BYTES:,} bytes: is this word2vec's binary format?"
                raise DataError(why, path=self.path, row=row)
            if end < 0 or end + 1 + size > len(data):
                more = stream.read(BLOCK_BYTES)
                if not more:
                    raise DataError("is cut off: the data ends too early; write it again", path=self.path, row=row)
                data, at = data[at:] + more, 0
                continue
            word = data[at:end].lstrip(b"\n")  # the end of the line before
            yield word, np.frombuffer(data, "<f4", self.dim, end + 1)
            at, row = end + 1 + size, row + 1
        if rest := (data[at:] + stream.read(2)).strip(b"\n"):
            yield rest, np.empty(0)
