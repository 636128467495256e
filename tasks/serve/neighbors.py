"""The nearest of exported vectors: exact, in chunks, in bounded memory.

Vectors lie in a `.npy` matrix beside its ids, or in a Parquet file with a column of lists (as `graphmill export
embeddings` writes them; those of other programs will do). A pass over the file serves some thousand queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.matching import listed
from configs.source_files import is_file
from tasks.dataset_store import matrix
from tasks.evaluate.ids import as_kind
from tasks.graph_store import Array
from tasks.readers.columns import is_text, plain
from tasks.readers.npy import NpyFile
from tasks.readers.parquet import open_parquet
from tasks.serve.outputs import ids_path

Metric = Literal["cosine", "dot"]
_CHUNK_ROWS = 1 << 15
_QUERIES = 1 << 11  # at a time: the scores of a chunk take 256 MiB at most


@dataclass(frozen=True)
class Neighbors:
    """The nearest of one node, best first."""

    node: Any
    ids: list[Any]
    scores: Array
    """float32 (k,)."""


class VectorFile:
    """Vectors with their ids, in a `.npy` or Parquet file."""

    def __init__(self, path: Path) -> None:
        """Open it. Raises DataError naming what is missing."""
        self.path = path
        if not is_file(path):
            raise DataError("there is no such file; make one with: graphmill export embeddings", path=path)
        if path.suffix == ".npy":
            self._open_npy()
        elif path.suffix in (".parquet", ".pq"):
            self._open_parquet()
        else:
            raise DataError("vectors are in a .npy or a .parquet file", path=path)

    def _open_npy(self) -> None:
        self._matrix: Array | None = NpyFile(self.path).mapped()
        beside = ids_path(self.path)
        if self._matrix.ndim != 2 or self._matrix.dtype.kind != "f":
            raise DataError(f"holds {self._matrix.dtype} {self._matrix.shape}, not rows of numbers", path=self.path)
        if not is_file(beside):
            raise DataError(f"its ids are missing: {beside.name} should stand beside it", path=self.path)
        self._ids, self._vectors = beside, ""
        with open_parquet(beside) as file:
            self.num_rows, schema = file.metadata.num_rows, file.schema_arrow
        self._id_column, self.id_type = self._ids_of(schema, beside)
        if self.num_rows != len(self._matrix):
            raise DataError(f"has {len(self._matrix):,} rows, {beside.name} has {self.num_rows:,}", path=self.path)
        self.dim = int(self._matrix.shape[1])

    def _open_parquet(self) -> None:
        self._matrix, self._ids = None, self.path
        with open_parquet(self.path) as file:
            schema, self.num_rows = file.schema_arrow, file.metadata.num_rows
        lists = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
        if len(lists) != 1:
            raise DataError(f"needs one column of fixed-size lists; it has {listed(schema.names)}", path=self.path)
        self._vectors = lists[0]
        self._id_column, self.id_type = self._ids_of(schema, self.path)
        kind = schema.field(self._vectors).type
        if kind.list_size == 0 or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
            raise DataError(f"is {kind}; vectors of numbers are needed", path=self.path, column=self._vectors)
        self.dim = int(kind.list_size)

    @staticmethod
    def _ids_of(schema: pa.Schema, path: Path) -> tuple[str, pa.DataType]:
        """Return the first column of texts or whole numbers, and its type."""
        for field in schema:
            if is_text(field.type) or pa.types.is_integer(field.type):
                return field.name, field.type
        raise DataError(f"needs a column of ids, texts or whole numbers; it has {listed(schema.names)}", path=path)

    def chunks(self) -> Iterator[tuple[int, pa.Array, Array]]:
        """Yield first row, ids and vectors, float32 (n, dim)."""
        columns = [self._id_column, *([self._vectors] if self._vectors else [])]
        first = 0
        with open_parquet(self._ids) as file:
            for batch in file.iter_batches(_CHUNK_ROWS, columns=columns):
                last = first + batch.num_rows
                ids = plain(batch.column(self._id_column), self._ids, first, self._id_column)
                rows = self._rows(batch) if self._matrix is None else self._matrix[first:last]
                yield first, ids, np.asarray(rows, np.float32)
                first = last

    def _rows(self, batch: pa.RecordBatch) -> Array:
        vectors = batch.column(self._vectors)
        if vectors.null_count or vectors.flatten().null_count:
            raise DataError("a vector is missing, or a value of one", path=self.path, column=self._vectors)
        return matrix(vectors)

    def find(self, wanted: pa.Array) -> tuple[pa.Array, Array, Array]:
        """Return ids as the file has them with their rows, int64 (q,), and vectors, float32 (q, dim).

        Raises DataError naming one that is not there.
        """
        rows, vectors = np.full(len(wanted), -1, np.int64), np.zeros((len(wanted), self.dim), np.float32)
        example: list[Any] = []
        for first, ids, chunk in self.chunks():
            example = example or ids[:3].to_pylist()
            wanted = as_kind(wanted, ids.type)
            place = compute.index_in(wanted, value_set=ids)
            found = np.flatnonzero(np.asarray(compute.is_valid(place)) & (rows < 0))
            at = np.asarray(compute.fill_null(place, 0))[found]
            rows[found], vectors[found] = at + first, chunk[at]
        missing = np.flatnonzero(rows < 0)
        if len(missing):
            name = wanted[int(missing[0])].as_py()
            listed = ", ".join(map(str, example))
            raise DataError(f"has no node {name!r}; it has {self.num_rows:,} such as {listed}", path=self.path)
        return wanted, rows, vectors

    def names(self, rows: Array) -> dict[int, Any]:
        """Return the ids of rows, int64 (n,) ascending."""
        found: dict[int, Any] = {}
        first = 0
        with open_parquet(self._ids) as file:
            for batch in file.iter_batches(_CHUNK_ROWS, columns=[self._id_column]):
                low, high = np.searchsorted(rows, [first, first + batch.num_rows])
                some = rows[low:high]
                ids = plain(batch.column(0), self._ids, first, self._id_column)
                found.update(zip(some.tolist(), ids.take(pa.array(some - first)).to_pylist(), strict=True))
                first += batch.num_rows
        return found


def nearest(path: Path, nodes: Sequence[Any] | pa.Array, k: int, metric: Metric = "cosine") -> Iterator[Neighbors]:
    """Yield the k nearest of each node, without itself; of equal ones those that stand first.

    Args:
        path: the vectors.
        nodes: ids, of the file's kind or texts.
        k: how many; fewer where there are not so many.
        metric: `cosine` of the angle (0 where a vector is zero), or `dot`, the product.

    Raises:
        DataError: a damaged file, or a node that is not in it.
    """
    file = VectorFile(path)
    wanted = nodes if isinstance(nodes, pa.Array) else pa.array(nodes)
    for start in range(0, len(wanted), _QUERIES):
        some, rows, queries = file.find(wanted[start : start + _QUERIES])
        best = _Best(len(some), min(k, file.num_rows - 1))
        unit = _normalised(queries) if metric == "cosine" else queries
        for first, _, chunk in file.chunks():
            scores = unit @ (_normalised(chunk) if metric == "cosine" else chunk).T
            inside = np.flatnonzero((rows >= first) & (rows < first + len(chunk)))
            scores[inside, rows[inside] - first] = -np.inf
            scores[np.isnan(scores)] = -np.inf  # they would sort above all others
            best.add(scores, first)
        names = file.names(np.unique(best.rows[best.rows >= 0]))
        for node, found, scores in zip(some.to_pylist(), best.rows, best.scores, strict=True):
            there = found >= 0  # vectors that are not numbers are near to nothing
            yield Neighbors(node, [names[row] for row in found[there].tolist()], scores[there])


class _Best:
    """The best k of all chunks so far, for each query."""

    def __init__(self, queries: int, k: int) -> None:
        self.k = k
        self.scores = np.full((queries, k), -np.inf, np.float32)
        self.rows = np.full((queries, k), -1, np.int64)

    def add(self, scores: Array, first: int) -> None:
        """Take a chunk's scores (queries, n), of rows from `first` on."""
        keep = min(self.k, scores.shape[1])
        if not keep:
            return
        # Stable, so that of equal scores the first row wins; only what may get in is sorted.
        limit = np.partition(scores, -keep, axis=1)[:, -keep]
        limit = np.maximum(limit, self.scores[:, -1])
        for number in range(len(scores)):
            at = np.flatnonzero(scores[number] >= limit[number])
            joined = np.concatenate([self.scores[number], scores[number, at]])
            rows = np.concatenate([self.rows[number], at + first])
            order = np.argsort(-joined, kind="stable")[: self.k]
            self.scores[number], self.rows[number] = joined[order], rows[order]


def _normalised(x: Array) -> Array:
    length = np.linalg.norm(x, axis=1, keepdims=True)
    normalised: Array = x / np.where(length > 0, length, 1.0)
    return normalised
