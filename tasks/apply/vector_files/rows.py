"""Vectors in Parquet files and in matrices, `.npy` and `.safetensors`, with the ids of their rows: some rows at a time.

`tasks/apply/vector_files/word_rows.py` reads word2vec's two formats likewise.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from configs.matching import listed
from configs.source_files import is_file
from tasks.apply.vector_files.formats import ids_path
from tasks.apply.vector_files.writers import VECTOR
from tasks.arrays import Array
from tasks.readers.arrays.npy import NpyFile, NpyHeader, check_row
from tasks.readers.columns import is_text
from tasks.readers.parquet import open_parquet, read_parquet
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
