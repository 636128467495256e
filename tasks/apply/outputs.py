"""What serving writes: rows of numbers with their ids, as one Parquet file or as a `.npy` matrix beside one of ids."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from tasks.evaluators.metrics import probabilities, sigmoid
from tasks.storage.graph_store import Array, create_array
from tasks.storage.parquet_output import ParquetOutput

VECTOR = "embedding"


def ids_path(matrix: Path) -> Path:
    """Return where the ids of a `.npy` file's rows stand: `x.npy` has `x.ids.parquet`."""
    return matrix.with_name(f"{matrix.stem}.ids.parquet")


class ParquetVectors(ParquetOutput):
    """Columns of ids and one of fixed-size lists of float32."""

    def __init__(self, path: Path) -> None:
        # As for features of data sets: numbers hardly repeat, but their single bytes do.
        super().__init__(path, use_dictionary=False, column_encoding={f"{VECTOR}.list.element": "BYTE_STREAM_SPLIT"})
        self.files = [path]

    def add(self, ids: dict[str, pa.Array], values: Array) -> None:
        """Write some rows."""
        flat = pa.array(np.ascontiguousarray(values, np.float32).ravel())
        self.write(pa.table({**ids, VECTOR: pa.FixedSizeListArray.from_arrays(flat, values.shape[1])}))


class NpyVectors(ParquetOutput):
    """A memory-mapped `.npy` matrix, float32 (rows, dim), and a Parquet file of ids."""

    def __init__(self, path: Path, rows: int, dim: int) -> None:
        super().__init__(ids_path(path))
        self.files = [path, ids_path(path)]
        self._matrix = create_array(path, (rows, dim), np.float32)

    def add(self, ids: dict[str, pa.Array], values: Array) -> None:
        """Write some rows."""
        self._matrix[self.num_rows : self.num_rows + len(values)] = values
        self.write(pa.table(ids))


def as_probabilities(scores: Array, task_type: str) -> Array:
    """Return a model's scores (n, C) as probabilities; a regression's as they are.

    Classes that exclude each other: softmax; a single score or several labels: of each by itself.
    """
    if task_type == "regression":
        return scores
    if task_type == "multilabel" or scores.shape[1] == 1:
        return sigmoid(scores)
    return probabilities(scores)
