"""Files that hold a matrix of vectors each, .npy, .npz and idx, and beside them ids and labels of the rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.layout_options import LAYOUT
from configs.matching import listed
from tasks.arrays import Array, blocks
from tasks.ingest.ids.id_index import IdIndex
from tasks.ingest.labels import NO_LABEL, LabelKind, count_no_label, to_labels
from tasks.ingest.raw_rows import NpyRows
from tasks.ingest.tables.paths import files_of
from tasks.readers.arrays.npy import IdxFile, NpyFile, check_row, member_names
from tasks.readers.columns import is_text, whole_numbers
from tasks.readers.numbers import checked_cast
from tasks.readers.parquet import open_parquet, read_parquet
from tasks.readers.streams import read_lines
from tasks.storage.manifests import TaskType

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


ID_COLUMNS = ("id", "graph_id")
"""What `graphmill export embeddings` calls its ids."""
_MAX_EXACT = 2**53
Labels = tuple[TaskType, pa.Array | np.ndarray, pa.Array | None]


def read_column(patterns: Sequence[str], num_rows: int, what: str) -> pa.Array:
    """Return one value for each row from files: texts or numbers. Raises DataError where they are more or fewer."""
    paths = files_of(patterns)
    parts = [_read(path, num_rows) for path in paths]
    if any(is_text(part.type) for part in parts):
        parts = [part.cast(pa.string()) for part in parts]
    elif len({part.type for part in parts}) > 1:
        parts = [part.cast(pa.float64(), safe=False) for part in parts]
    values = pa.concat_arrays(parts)
    if len(values) != num_rows:
        why = f"{what} are {len(values):,}, and there are {num_rows:,} vectors; each has one"
        raise DataError(why, path=", ".join(patterns))
    return values


def _read(path: Path, num_rows: int) -> pa.Array:
    if path.suffix == ".parquet":
        with open_parquet(path) as opened:
            names = opened.schema_arrow.names
        column = next((name for name in ID_COLUMNS if name in names), ID_COLUMNS[0])
        columns = [batch.column(0) for batch in read_parquet(path, [column])]
        return pa.concat_arrays(columns) if columns else pa.array([], pa.string())
    if path.suffix != ".npy" and not is_idx(path):
        lines = [compute.utf8_rtrim(part, "\r\n") for _, part in read_lines(path)]
        return whole_numbers(pa.concat_arrays(lines) if lines else pa.array([], pa.string()))
    file = NpyFile(path) if path.suffix == ".npy" else IdxFile(path)
    shape = file.header().shape if isinstance(file, NpyFile) else file.shape()
    if not shape or shape[1:] != (1,) * (len(shape) - 1):
        raise DataError(f"has the shape {shape}; one value a row is needed, (rows,)", path=path)
    if shape[0] > num_rows:  # said before a small file is unpacked to gigabytes
        raise DataError(f"has {shape[0]:,} rows, and there are {num_rows:,} vectors; each has one", path=path)
    values = file.read().reshape(shape[0])
    return pa.array(values.astype(np.float32) if values.dtype == np.float16 else values)


def checked_ids(ids: pa.Array, name: object, column: object = None) -> pa.Array | None:
    """Return ids, int64 or texts; None where they are the rows' numbers.

    Raises DataError naming a row of no id, or of one that another row has.
    """
    if not is_text(ids.type) and not pa.types.is_integer(ids.type):
        why = f"holds {ids.type}; ids are whole numbers or texts: write them so, or name another column in dataset.id"
        raise DataError(why, path=name, column=column)
    missing = ids.is_null() if not is_text(ids.type) else compute.fill_null(compute.equal(ids, ""), True)
    if compute.any(missing).as_py():
        raise DataError("the id is missing", path=name, row=compute.index(missing, True).as_py(), column=column)
    try:
        ids = ids.cast(pa.string() if is_text(ids.type) else pa.int64())
    except pa.ArrowInvalid:
        raise DataError("holds an id too large for int64; write ids as texts", path=name, column=column) from None
    number = IdIndex().add(ids)
    again = np.flatnonzero(number != np.arange(len(number)))
    if len(again):
        row = int(again[0])
        raise DataError(
            f"the id {ids[row].as_py()!r} stands in row {int(number[row])} already, and an id names one vector; leave "
            "one of the rows out, or the ids: then rows are numbered",
            path=name,
            row=row,
            column=column,
        )
    if not is_text(ids.type) and np.array_equal(np.asarray(ids), np.arange(len(ids))):
        return None
    return ids


def label_column(values: pa.Array, name: object, column: object = None) -> Labels:
    """Return the task type, the column `label`, and the names of classes in the order of their codes.

    Classes are int64 (n,), -1 for none, amounts float32 (n, 1), NaN for none. Of whole numbers -1 and -100 are none.

    Raises DataError: neither texts nor numbers, or one class alone.
    """
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.string())
    if not is_text(values.type):
        if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_null(values.type)):
            raise DataError(f"is {values.type}; labels are texts or numbers", path=name, column=column)
        numbers = np.asarray(compute.fill_null(values.cast(pa.float64(), safe=False), np.nan), np.float64)
        there = numbers[~np.isnan(numbers)]
        if (there != np.floor(there)).any():
            amounts = to_labels(numbers[:, None], LabelKind("regression", 0, 1), name, column=column)
            return "regression", amounts, None
        if (np.abs(there) > _MAX_EXACT).any():
            raise DataError("a class number exceeds 2^53; write classes as texts", path=name, column=column)
        whole = pa.array(np.nan_to_num(numbers, nan=-1).astype(np.int64))
        values = compute.if_else(pa.array(np.isnan(numbers)), None, whole).cast(pa.string())
    # Classes are numbered in ascending order, as numbers where all are numbers.
    texts = compute.fill_null(values.cast(pa.string()), "")
    keys = whole_numbers(compute.unique(texts.filter(compute.not_equal(texts, ""))))
    keys = keys.take(compute.sort_indices(keys))
    if not is_text(keys.type):
        keys = keys.slice(count_no_label(keys.slice(0, len(NO_LABEL) + 1).to_pylist()))
    names = keys.cast(pa.string())
    if len(names) < 2:
        count = f"has 1 class ({names[0]})" if len(names) else "has no label"
        raise DataError(f"{count}; two classes are needed: leave labels out", path=name, column=column)
    codes = compute.fill_null(compute.index_in(texts, value_set=names), -1)
    return "multiclass", np.asarray(codes).astype(np.int64), names


NO_LABELS: Labels = (LAYOUT, pa.array([], pa.int64()), None)
