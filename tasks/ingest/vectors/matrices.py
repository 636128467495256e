"""Vectors in files that hold a matrix each: .npy, .npz and idx."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from configs.errors import DataError
from configs.matching import listed
from tasks.arrays import Array, blocks
from tasks.ingest.raw_rows import NpyRows
from tasks.readers.arrays.idx import IdxFile
from tasks.readers.arrays.npy import NpyFile, check_row, member_names
from tasks.readers.numbers import checked_cast

_CHUNK_BYTES = 4 << 20


class Matrix(NamedTuple):
    """A file's vectors."""

    name: object
    """For messages."""
    rows: int
    columns: int
    chunks: Callable[[], Iterator[Array]]
    """Yields float32 (rows, columns). Raises DataError naming row and column of what is not finite."""


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
        rows = NpyRows(path, array if array is not None else _only_matrix(path))
        shape, _ = rows.shape()
        return Matrix(rows.path, *_rows_and_columns(shape, rows.path), lambda: rows.chunks(np.float32))
    if path.suffix != ".npy":
        file = IdxFile(path)
        return Matrix(path, *_rows_and_columns(file.shape(), path), lambda: _finite(file.chunks(), path))
    npy = NpyFile(path)
    header = npy.header()
    num_rows, width = _rows_and_columns(header.shape, path)
    check_row(header, path)

    def mapped_chunks() -> Iterator[Array]:
        mapped = npy.mapped()
        for part in blocks(num_rows, max(_CHUNK_BYTES // (width * mapped.itemsize), 1)):
            yield np.asarray(mapped[part]).reshape(part.stop - part.start, width)

    return Matrix(path, num_rows, width, lambda: _finite(mapped_chunks(), path))


def _finite(chunks: Iterator[Array], path: object) -> Iterator[Array]:
    row = 0
    for chunk in chunks:
        yield checked_cast(chunk, np.float32, path, row)
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
    shapes: dict[str, tuple[int, ...]] = {}
    problem: DataError | None = None
    for name in member_names(path):
        try:
            shapes[name] = NpyFile(path, name).header().shape
        except DataError as error:  # texts, say, which are no vectors
            problem = error
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    if len(matrices) == 1:
        return matrices[0]
    if problem is not None and not shapes:
        raise problem
    if not shapes:
        raise DataError("holds no array; vectors are one with rows and columns", path=path)
    there = listed([f"{name} {shape}" for name, shape in shapes.items()])
    raise DataError(f"which array holds the vectors? dataset.array says so; there are {there}", path=path)
