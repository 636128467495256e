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
import pyarrow.parquet as pq

from configs.errors import DataError
from tasks.dataset_store import matrix
from tasks.evaluate.ids import as_kind
from tasks.graph_store import Array
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
        if not path.is_file():
            raise DataError("there is no such file; make one with: graphmill export embeddings", path=path)
        if path.suffix == ".npy":
            self._open_npy()
        elif path.suffix in (".parquet", ".pq"):
            self._open_parquet()
        else:
            raise DataError("vectors are in a .npy or a .parquet file", path=path)

    def _open_npy(self) -> None:
        try:
            self._matrix: Array | None = np.load(self.path, mmap_mode="r", allow_pickle=False)
        except ValueError as error:
            raise DataError(f"is not a whole .npy file: {error}", path=self.path) from error
        assert self._matrix is not None
        beside = ids_path(self.path)
        if self._matrix.ndim != 2 or self._matrix.dtype.kind != "f":
            raise DataError(f"holds {self._matrix.dtype} {self._matrix.shape}, not rows of numbers", path=self.path)
        if not beside.is_file():
            raise DataError(f"its ids are missing: {beside.name} should stand beside it", path=self.path)
        self._ids, self._vectors = beside, ""
        with pq.ParquetFile(beside) as file:
            self.num_rows, self._id_column = file.metadata.num_rows, file.schema_arrow.names[0]
            self.id_type = file.schema_arrow.types[0]
        if self.num_rows != len(self._matrix):
            raise DataError(f"has {len(self._matrix):,} rows, {beside.name} has {self.num_rows:,}", path=self.path)
        self.dim = int(self._matrix.shape[1])

    def _open_parquet(self) -> None:
        self._matrix, self._ids = None, self.path
        with pq.ParquetFile(self.path) as file:
            schema, self.num_rows = file.schema_arrow, file.metadata.num_rows
        lists = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
        others = [field.name for field in schema if not pa.types.is_nested(field.type)]
        if len(lists) != 1 or not others:
            raise DataError(
                f"needs a column of ids and one of fixed-size lists; it has {', '.join(schema.names)}", path=self.path
            )
        self._vectors, self._id_column = lists[0], others[0]
        self.id_type = schema.field(others[0]).type
        self.dim = int(schema.field(lists[0]).type.list_size)

    def chunks(self) -> Iterator[tuple[int, pa.Array, Array]]:
        """Yield first row, ids and vectors, float32 (n, dim)."""
        columns = [self._id_column, *([self._vectors] if self._vectors else [])]
        first = 0
        with pq.ParquetFile(self._ids) as file:
            for batch in file.iter_batches(_CHUNK_ROWS, columns=columns):
                last = first + batch.num_rows
                rows = matrix(batch.column(1)) if self._matrix is None else self._matrix[first:last]
                yield first, batch.column(0), np.asarray(rows, np.float32)
                first = last

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
        with pq.ParquetFile(self._ids) as file:
            for batch in file.iter_batches(_CHUNK_ROWS, columns=[self._id_column]):
                low, high = np.searchsorted(rows, [first, first + batch.num_rows])
                some = rows[low:high]
                found.update(zip(some.tolist(), batch.column(0).take(pa.array(some - first)).to_pylist(), strict=True))
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
