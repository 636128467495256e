"""Rows of one raw file, whatever its format, in chunks of bounded memory, and feature columns as they stream by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn, TypeAlias

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.readers.arrays.npy import NpyFile, NpyHeader, check_row, read_values
from tasks.readers.numbers import checked_cast, number_chunks
from tasks.storage.manifests import FeatureColumn

_CHUNK_BYTES = 4 << 20


class CsvRows:
    """A CSV file without a header, gzip-compressed or not."""

    def __init__(self, path: Path) -> None:
        self.path: object = path
        self._file = path

    def chunks(self, dtype: Any, num_columns: int | None = None, *, missing: bool = False) -> Iterator[Array]:
        """See NpyRows."""
        return number_chunks(self._file, dtype, num_columns=num_columns, missing=missing)

    def check_count(self, num_rows: int, counted_by: object) -> None:
        """A text does not say it."""


class NpyRows:
    """An array in a `.npy` file or in a member of an `.npz` archive, streamed: it is never in memory as a whole.

    A 1-D array counts as one column. `transposed` is for edge_index (2, m): both lines are streamed side by side.
    """

    def __init__(self, path: Path, member: str | None = None, *, transposed: bool = False) -> None:
        self._file, self._transposed = NpyFile(path, member), transposed
        self.path: object = self._file.name

    def shape(self) -> tuple[tuple[int, ...], np.dtype[Any]]:
        """Return shape and dtype from the header. Raises DataError where it is no matrix that can be streamed."""
        header = self._file.header()
        self._check(header)
        return header.shape, header.dtype

    def chunks(self, dtype: Any, num_columns: int | None = None, *, missing: bool = False) -> Iterator[Array]:
        """Yield arrays (rows, columns). `missing` lets NaN and empty cells pass (floats only).

        Raises DataError: naming file, row and column.
        """
        first_row = 0
        for chunk in self._lines() if self._transposed else self._blocks():
            if num_columns is not None and chunk.shape[1] != num_columns:
                raise DataError(f"has {chunk.shape[1]} columns, expected {num_columns}", path=self.path)
            yield checked_cast(chunk, dtype, self.path, first_row, missing)
            first_row += len(chunk)

    def check_count(self, num_rows: int, counted_by: object) -> None:
        """Raise DataError where the header says other than `num_rows`: a small file can unpack to gigabytes."""
        header = self._file.header()
        self._check(header)
        rows = header.shape[-1 if self._transposed else 0]
        if rows != num_rows:
            raise disagreement(self.path, rows, num_rows, counted_by)

    def _check(self, header: NpyHeader) -> None:
        shape = header.shape
        if header.fortran and len(shape) > 1 and min(shape) > 1:
            raise DataError("is in Fortran order; save it with numpy.ascontiguousarray", path=self.path)
        if not 1 <= len(shape) <= 2:
            raise DataError(f"has {len(shape)} dimensions; rows and columns are needed", path=self.path)
        if self._transposed:
            if len(shape) != 2 or shape[0] != 2:
                raise DataError(f"has the shape {shape}; (2, number of edges) is needed", path=self.path)
        else:
            check_row(header, self.path)

    def _blocks(self) -> Iterator[Array]:
        with self._file.open() as (stream, header):
            self._check(header)
            shape, dtype = header.shape, header.dtype
            width = shape[1] if len(shape) == 2 else 1
            step = max(1, _CHUNK_BYTES // (width * dtype.itemsize))
            for first in range(0, shape[0], step):
                rows = min(step, shape[0] - first)
                yield read_values(stream, rows * width, dtype, self.path).reshape(rows, width)

    def _lines(self) -> Iterator[Array]:
        with self._file.open() as (above, header), self._file.open() as (below, _):
            self._check(header)
            _, num_edges = header.shape
            itemsize = header.dtype.itemsize
            below.seek(num_edges * itemsize, 1)
            step = _CHUNK_BYTES // itemsize
            for first in range(0, num_edges, step):
                size = min(step, num_edges - first)
                lines = [read_values(stream, size, header.dtype, self.path) for stream in (above, below)]
                yield np.stack(lines).T


RawRows: TypeAlias = CsvRows | NpyRows
"""A file (or a member of one) that holds rows of numbers."""


class Taker:
    """Rows of a chunked source in portions of one's own choice, so that several files can be read in step."""

    def __init__(self, path: object, chunks: Iterable[Array], num_rows: int, counted_by: object) -> None:
        """`num_rows` must come out; `counted_by` is the file that says so."""
        self.path = path
        self._chunks = iter(chunks)
        self._left: Array | None = None
        self._num_rows, self._taken = num_rows, 0
        self._counted_by = counted_by

    def take(self, count: int) -> Array:
        """Return the next `count` rows. Raises DataError where the file ends before."""
        if count == 0:
            return self._peek()[:0]
        parts: list[Array] = []
        have = 0
        while have < count:
            chunk = self._peek()
            want = count - have
            if len(chunk) == 0:
                self._disagree(self._taken + have)
            self._left = chunk[want:] if len(chunk) > want else None
            parts.append(chunk[:want])
            have += len(parts[-1])
        self._taken += count
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _peek(self) -> Array:
        """Return rows that were not taken yet; none at the end."""
        if self._left is None:
            self._left = next((chunk for chunk in self._chunks if len(chunk)), None)
        return np.empty((0, 1)) if self._left is None else self._left

    def finish(self) -> None:
        """Raise DataError where rows are left over."""
        extra = 0 if self._left is None else len(self._left)
        extra += sum(len(chunk) for chunk in self._chunks)
        if extra:
            self._disagree(self._taken + extra)

    def _disagree(self, there: int) -> NoReturn:
        raise disagreement(self.path, there, self._num_rows, self._counted_by)


def disagreement(path: object, there: int, num_rows: int, counted_by: object) -> DataError:
    """Return what is wrong with a file of other rows than another file says."""
    return DataError(f"has {there:,} rows, {counted_by} says {num_rows:,}", path=path)


class FeatureKind:
    """One feature column: numeric (float32) or categorical (int32 codes from 0)."""

    def __init__(self, column: str, categorical: bool, cardinalities: tuple[int, ...], path: object) -> None:
        """`cardinalities`: known beforehand, or empty: then the largest codes decide."""
        self.column, self.categorical, self.path = column, categorical, path
        self.cardinalities = cardinalities
        self.width = len(cardinalities)
        self._largest: Array | None = None

    @property
    def dtype(self) -> Any:
        """Type of the stored values."""
        return np.int32 if self.categorical else np.float32

    def checked(self, chunks: Iterable[Array]) -> Iterator[Array]:
        """Pass chunks (rows, width) on after checking them. Raises DataError naming row and column."""
        first_row = 0
        for chunk in chunks:
            self.width = chunk.shape[1]
            if self.categorical and len(chunk):
                self._check_codes(chunk, first_row)
            first_row += len(chunk)
            yield np.ascontiguousarray(chunk)

    def _check_codes(self, chunk: Array, first_row: int) -> None:
        limits = np.array(self.cardinalities or [np.iinfo(np.int32).max] * self.width)
        wrong = (chunk < 0) | (chunk >= limits)
        if wrong.any():
            row, column = (int(x[0]) for x in np.nonzero(wrong))
            raise DataError(
                f"code {int(chunk[row, column])} is not in 0..{int(limits[column]) - 1}",
                path=self.path,
                row=first_row + row,
                column=column,
            )
        largest = chunk.max(axis=0)
        self._largest = largest if self._largest is None else np.maximum(self._largest, largest)

    def describe(self) -> FeatureColumn:
        """Return the manifest's entry; call it when all chunks have passed."""
        cardinalities = self.cardinalities
        if self.categorical and not cardinalities:
            largest = np.zeros(self.width, np.int64) if self._largest is None else self._largest
            cardinalities = tuple(int(code) + 1 for code in largest)
        kind = "categorical" if self.categorical else "numeric"
        return FeatureColumn(column=self.column, kind=kind, dim=self.width, cardinalities=cardinalities)
