"""Vectors in files that hold a matrix each: .npy, .npz and idx."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from configs.errors import DataError
from configs.matching import listed
from tasks.arrays import Array, blocks
from tasks.ingest.raw_rows import NpyRows, checked_cast
from tasks.readers.idx import IdxFile
from tasks.readers.npy import NpyFile, check_row, member_names

_CHUNK_BYTES = 4 << 20


class Matrix(Protocol):
    """A file's vectors."""

    name: object
    """For messages."""

    def shape(self) -> tuple[int, int]:
        """Return rows and columns. Raises DataError."""

    def chunks(self) -> Iterator[Array]:
        """Yield float32 (rows, columns). Raises DataError naming row and column of what is not finite."""


def is_matrix(path: Path) -> bool:
    """Whether a file holds a matrix, by its name; else it is a table."""
    return path.suffix in (".npy", ".npz") or is_idx(path)


def is_idx(path: Path) -> bool:
    """Whether a file is named as idx files are: `train-images-idx3-ubyte.gz`, or `.idx`."""
    name = path.name.removesuffix(".gz")
    return name.endswith(("-ubyte", ".idx"))


def open_matrix(path: Path, array: str | None) -> Matrix:
    """Return a file's matrix. Raises DataError."""
    if path.suffix == ".npz":
        return _Member(path, array)
    return _Npy(path) if path.suffix == ".npy" else _Idx(path)


class _Npy:
    def __init__(self, path: Path) -> None:
        self.name: object = path
        self._file = NpyFile(path)

    def shape(self) -> tuple[int, int]:
        header = self._file.header()
        shape = _rows_and_columns(header.shape, self.name)
        check_row(header, self.name)
        return shape

    def chunks(self) -> Iterator[Array]:
        rows, columns = self.shape()
        mapped = self._file.mapped()
        for part in blocks(rows, max(_CHUNK_BYTES // (columns * mapped.itemsize), 1)):
            chunk = np.asarray(mapped[part]).reshape(part.stop - part.start, columns)
            yield checked_cast(chunk, np.float32, self.name, part.start)


class _Member:
    def __init__(self, path: Path, array: str | None) -> None:
        self._rows = NpyRows(path, array if array is not None else _only_matrix(path))
        self.name: object = self._rows.path

    def shape(self) -> tuple[int, int]:
        return _rows_and_columns(self._rows.shape()[0], self.name)

    def chunks(self) -> Iterator[Array]:
        self.shape()
        yield from self._rows.chunks(np.float32)


class _Idx:
    def __init__(self, path: Path) -> None:
        self.name: object = path
        self._file = IdxFile(path)

    def shape(self) -> tuple[int, int]:
        return _rows_and_columns(self._file.shape(), self.name)

    def chunks(self) -> Iterator[Array]:
        self.shape()
        row = 0
        for chunk in self._file.chunks():
            yield checked_cast(chunk, np.float32, self.name, row)
            row += len(chunk)


def _rows_and_columns(shape: Sequence[int], name: object) -> tuple[int, int]:
    if len(shape) < 2:
        raise DataError(
            f"has the shape {tuple(shape)}; vectors are rows, (rows, columns): if it holds labels, name it in "
            "dataset.labels",
            path=name,
        )
    if math.prod(shape[1:]) == 0:
        raise DataError(f"has no columns (its shape is {tuple(shape)}); a vector has numbers", path=name)
    return shape[0], math.prod(shape[1:])


def _only_matrix(path: Path) -> str:
    """Return the name of the only array with rows and columns. Raises DataError."""
    shapes: dict[str, tuple[int, ...]] = {}
    problem: DataError | None = None
    for name in member_names(path):
        try:
            shapes[name] = NpyFile(path, name).header().shape
        except DataError as error:  # texts, say, which are no vectors
            problem = error
    found = [name for name, shape in shapes.items() if len(shape) == 2]
    if len(found) == 1:
        return found[0]
    if problem is not None and not shapes:
        raise problem
    if not shapes:
        raise DataError("holds no array; vectors are one with rows and columns", path=path)
    known = listed([f"{name} {shape}" for name, shape in shapes.items()])
    raise DataError(f"which array holds the vectors? dataset.array says so; there are {known}", path=path)
