"""What serving writes: rows of numbers with their ids, as one Parquet file or as a `.npy` matrix beside one of ids."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.evaluators.scores import probabilities, sigmoid
from tasks.storage.graph_store import Array, create_array

VECTOR = "embedding"


def ids_path(matrix: Path) -> Path:
    """Return where the ids of a `.npy` file's rows stand: `x.npy` has `x.ids.parquet`."""
    return matrix.with_name(f"{matrix.stem}.ids.parquet")


class ParquetVectors:
    """Columns of ids and one of fixed-size lists of float32."""

    def __init__(self, path: Path) -> None:
        self.files = [path]
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> ParquetVectors:
        """Start."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the file."""
        if self._writer is not None:
            self._writer.close()

    def add(self, ids: dict[str, pa.Array], values: Array) -> None:
        """Write some rows."""
        flat = pa.array(np.ascontiguousarray(values, np.float32).ravel())
        columns = {**ids, VECTOR: pa.FixedSizeListArray.from_arrays(flat, values.shape[1])}
        table = pa.table(columns)
        if self._writer is None:
            # As the data sets' features: numbers of a vector hardly repeat, their bytes do.
            encoding = {f"{VECTOR}.list.element": "BYTE_STREAM_SPLIT"}
            options = {"use_dictionary": False, "column_encoding": encoding, "compression": "zstd"}
            self._writer = pq.ParquetWriter(self.files[0], table.schema, **options)
        self._writer.write_table(table)


class NpyVectors:
    """A memory-mapped `.npy` matrix, float32 (rows, dim), and a Parquet file of ids."""

    def __init__(self, path: Path, rows: int, dim: int) -> None:
        self.files = [path, ids_path(path)]
        self._matrix = create_array(path, (rows, dim), np.float32)
        self._done = 0
        self._writer: pq.ParquetWriter | None = None

    def __enter__(self) -> NpyVectors:
        """Start."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the files."""
        if self._writer is not None:
            self._writer.close()
        del self._matrix

    def add(self, ids: dict[str, pa.Array], values: Array) -> None:
        """Write some rows."""
        self._matrix[self._done : self._done + len(values)] = values
        self._done += len(values)
        table = pa.table(ids)
        if self._writer is None:
            self._writer = pq.ParquetWriter(self.files[1], table.schema, compression="zstd")
        self._writer.write_table(table)


def as_probabilities(scores: Array, task_type: str) -> Array:
    """Return a model's scores (n, C) as probabilities; a regression's as they are.

    Classes that exclude each other: softmax; a single score or several labels: of each by itself.
    """
    if task_type == "regression":
        return scores
    if task_type == "multilabel" or scores.shape[1] == 1:
        return sigmoid(scores)
    return probabilities(scores)
