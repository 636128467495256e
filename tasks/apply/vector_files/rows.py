"""Vectors with the ids of their rows, some rows at a time: Parquet, `.npy`, `.safetensors`, and word2vec's formats."""

from __future__ import annotations

import io
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from configs.matching import listed
from configs.source_files import check_file, is_file, open_file
from tasks.apply.vector_files.formats import ids_path
from tasks.apply.vector_files.writers import VECTOR
from tasks.arrays import Array
from tasks.readers.arrays.npy import NpyFile, NpyHeader, check_row
from tasks.readers.columns import is_text
from tasks.readers.limits import BLOCK_BYTES, MAX_CELL_BYTES
from tasks.readers.parquet import open_parquet, read_parquet
from tasks.readers.streams import decode
from tasks.storage.dataset_store import matrix

_ID_COLUMNS = ("id", "graph_id")  # as exports call them
_TENSOR_TYPES = {"F16": np.float16, "F32": np.float32, "F64": np.float64}


class VectorRows(ABC):
    """Rows of a file: where they are is told where one of them is refused."""

    num_rows: int
    dim: int
    column: str | None = None
    """Of the vectors."""
    ids: tuple[Path, str | None]
    """File and column of the ids."""
    id_type: pa.DataType

    def names(self, most: int) -> Iterator[pa.Array]:
        """Yield the ids, so many at a time at most."""
        path, column = self.ids
        return (batch.column(0) for batch in _batches(path, [str(column)], most))

    @abstractmethod
    def rows(self, most: int) -> Iterator[tuple[pa.Array, Array]]:
        """Yield ids and vectors (n, dim), so many at a time at most. Raises DataError for damage."""


class ParquetRows(VectorRows):
    """A column of lists of one length, and one of ids."""

    def __init__(self, path: Path) -> None:
        """Open it. Raises DataError naming what is missing."""
        self.path = path
        with open_parquet(path) as file:
            schema, self.num_rows = file.schema_arrow, file.metadata.num_rows
        lists = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
        if len(lists) != 1:
            raise DataError(f"needs one column of fixed-size lists; it has {listed(schema.names)}", path=path)
        self._vectors = self.column = lists[0]
        self._id_column, self.id_type = id_column(schema, path)
        self.ids = path, self._id_column
        kind = schema.field(self._vectors).type
        if kind.list_size == 0 or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
            raise DataError(f"is {kind}; vectors of numbers are needed", path=path, column=self.column)
        self.dim = int(kind.list_size)

    def rows(self, most: int) -> Iterator[tuple[pa.Array, Array]]:
        """Yield ids and vectors."""
        for batch in _batches(self.path, [self._id_column, self._vectors], most):
            vectors = batch.column(self._vectors)
            if vectors.null_count or vectors.flatten().null_count:
                raise DataError("a vector is missing, or a value of one", path=self.path, column=self.column)
            yield batch.column(self._id_column), matrix(vectors)


class MatrixRows(VectorRows):
    """A matrix, and the ids of its rows in a Parquet file beside it."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: Any, part: Callable[[int, int], Array]) -> None:
        """`part` returns some rows. Raises DataError: it is no matrix of numbers, or has no ids."""
        if len(shape) != 2 or np.dtype(dtype).kind != "f":
            raise DataError(f"holds {np.dtype(dtype)} {shape}, not rows of numbers", path=path)
        check_row(NpyHeader(shape, np.dtype(dtype), fortran=False), path)
        self.num_rows, self.dim = shape
        self._part, beside = part, ids_path(path)
        if not is_file(beside):
            raise DataError(f"its ids are missing: {beside.name} should stand beside it", path=path)
        with open_parquet(beside) as file:
            count, schema = file.metadata.num_rows, file.schema_arrow
        name, self.id_type = id_column(schema, beside)
        self.ids = beside, name
        if count != self.num_rows:
            raise DataError(f"has {self.num_rows:,} rows, {beside.name} has {count:,}", path=path)

    @classmethod
    def of_npy(cls, path: Path) -> MatrixRows:
        """Open a `.npy` matrix. Raises DataError naming what is missing."""
        array = NpyFile(path).mapped()
        return cls(path, array.shape, array.dtype, lambda first, last: array[first:last])

    def rows(self, most: int) -> Iterator[tuple[pa.Array, Array]]:
        """Yield ids and vectors."""
        first = 0
        for ids in self.names(most):
            yield ids, self._part(first, first + len(ids))
            first += len(ids)


def safetensors_rows(path: Path) -> MatrixRows:
    """Open the tensor `embedding` of a file of safetensors, or the only one. Raises DataError naming what is missing.

    The library compares what the file's header says with its bytes before it reads any.
    """
    from safetensors import SafetensorError, safe_open

    try:
        file: Any = safe_open(path, "np")
        names = list(file.keys())
        name = VECTOR if VECTOR in names else names[0] if len(names) == 1 else None
        if name is None:
            raise DataError(f"needs a tensor {VECTOR!r} or one alone; it has {listed(names)}", path=path)
        tensor = file.get_slice(name)
        kind, shape = tensor.get_dtype(), tuple(tensor.get_shape())
    except DataError:
        raise
    except (SafetensorError, OSError, ValueError) as error:
        why = f"is damaged or no file of safetensors ({str(error)[:200]}); write it again"
        raise DataError(why, path=path) from None
    if kind not in _TENSOR_TYPES:
        raise DataError(f"its tensor {name!r} is of {kind}; vectors are of {', '.join(_TENSOR_TYPES)}", path=path)
    return MatrixRows(path, shape, _TENSOR_TYPES[kind], lambda first, last: tensor[first:last])


def id_column(schema: pa.Schema, path: Path) -> tuple[str, pa.DataType]:
    """Return the column of ids and its type: `id`, as exports call it, else the only one of texts or whole numbers.

    Raises DataError: there is none, or several might be.
    """
    able = [field.name for field in schema if is_text(field.type) or pa.types.is_integer(field.type)]
    named = next((name for name in _ID_COLUMNS if name in schema.names), None)
    if named is not None and named not in able:
        raise DataError(
            f"needs a column of ids, texts or whole numbers; these are {schema.field(named).type}",
            path=path,
            column=named,
        )
    if not able:
        raise DataError(f"needs a column of ids, texts or whole numbers; it has {listed(schema.names)}", path=path)
    if named is None and len(able) > 1:
        raise DataError(
            f"has several columns that may be the ids, {listed(able)}; call the one that is `{_ID_COLUMNS[0]}`",
            path=path,
        )
    name = named or able[0]
    return name, schema.field(name).type


def _batches(path: Path, columns: list[str], most: int) -> Iterator[pa.RecordBatch]:
    for batch in read_parquet(path, columns):
        for start in range(0, batch.num_rows, most):
            yield batch.slice(start, most)


_NUMBER_CHARACTERS = 32  # no float takes more as text
_FIRST_LINE = re.compile(rb"(\d{1,12})[ \t](\d{1,9})[ \t]*\r?\n")


class WordRows(VectorRows):
    """A file of words with their vectors, behind a line of two numbers; the words are the ids.

    Nothing is believed of the first line before the file's size agrees with it, and no line is read further than such a
    line can be.
    """

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
