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
from tasks.apply.outputs import ids_path
from tasks.readers.columns import is_text
from tasks.readers.limits import BATCH_BYTES
from tasks.readers.npy import NpyFile, check_row
from tasks.readers.parquet import open_parquet, read_parquet
from tasks.storage.dataset_store import matrix
from tasks.storage.graph_store import Array
from tasks.storage.ids import as_kind

Metric = Literal["cosine", "dot"]
_CHUNK_ROWS = 1 << 15
_QUERIES = 1 << 11  # at a time: the scores of a chunk take 256 MiB at most
_FAR = 1e15  # numbers beyond it, or below its inverse, are scaled before float32 squares them


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
        file = NpyFile(self.path)
        self._matrix: Array | None = file.mapped()
        beside = ids_path(self.path)
        if self._matrix.ndim != 2 or self._matrix.dtype.kind != "f":
            raise DataError(f"holds {self._matrix.dtype} {self._matrix.shape}, not rows of numbers", path=self.path)
        check_row(file.header(), self.path)
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

    @property
    def rows_at_a_time(self) -> int:
        """How many vectors are held at once: so many bytes at most."""
        return max(1, min(_CHUNK_ROWS, BATCH_BYTES // (4 * self.dim)))

    def chunks(self) -> Iterator[tuple[int, pa.Array, Array]]:
        """Yield first row, ids and vectors, float32 (n, dim). Raises DataError naming a row of other numbers."""
        for first, batch in self._batches([self._id_column, *([self._vectors] if self._vectors else [])]):
            ids = batch.column(self._id_column)
            rows = self._rows(batch) if self._matrix is None else self._matrix[first : first + batch.num_rows]
            yield first, ids, self._checked(rows, first)

    def _batches(self, columns: list[str]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield some rows of the ids' file at a time, with the number of the first."""
        first = 0
        for batch in read_parquet(self._ids, columns):
            for start in range(0, batch.num_rows, self.rows_at_a_time):
                some = batch.slice(start, self.rows_at_a_time)
                yield first, some
                first += some.num_rows

    def _checked(self, rows: Array, first: int) -> Array:
        """Return vectors as float32. Raises DataError where one holds NaN, or more than float32 can."""
        with np.errstate(over="ignore"):
            x = np.asarray(rows, np.float32)
        wrong = np.flatnonzero(~np.isfinite(x).all(1))
        if len(wrong):
            row = int(wrong[0])
            value = rows[row][~np.isfinite(x[row])][0]
            raise DataError(
                f"holds {value:g}; vectors are of numbers that float32 holds (up to 3.4e38): leave the row out, or "
                "write smaller numbers",
                path=self.path,
                row=first + row,
                column=self._vectors or None,
            )
        return x

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
        for first, batch in self._batches([self._id_column]):
            low, high = np.searchsorted(rows, [first, first + batch.num_rows])
            some = rows[low:high]
            found.update(zip(some.tolist(), batch.column(0).take(pa.array(some - first)).to_pylist(), strict=True))
        return found


def nearest(path: Path, nodes: Sequence[Any] | pa.Array, k: int, metric: Metric = "cosine") -> Iterator[Neighbors]:
    """Yield the k nearest of each node (fewer where there are fewer), without itself; of equal ones the first.

    `nodes` are ids, of the file's kind or texts; `metric` is the `cosine` of the angle (0 where a vector is zero), or
    the product, `dot`. Raises DataError: a damaged file, numbers or products that float32 does not hold, or a node that
    is not in it.
    """
    file = VectorFile(path)
    wanted = nodes if isinstance(nodes, pa.Array) else pa.array(nodes)
    at_a_time = min(_QUERIES, file.rows_at_a_time)
    for start in range(0, len(wanted), at_a_time):
        some, rows, queries = file.find(wanted[start : start + at_a_time])
        best = _Best(len(some), min(k, file.num_rows - 1))
        scale = np.ones(len(some)) if metric == "cosine" else _powers_of_two(queries)
        query = _normalised(queries) if metric == "cosine" else (queries / scale[:, None]).astype(np.float32)
        for first, _, chunk in file.chunks():
            with np.errstate(over="ignore", invalid="ignore"):
                scores = query @ (_normalised(chunk) if metric == "cosine" else chunk).T
            _refuse_infinite(path, scores)
            inside = np.flatnonzero((rows >= first) & (rows < first + len(chunk)))
            scores[inside, rows[inside] - first] = -np.inf
            best.add(scores, first)
        with np.errstate(over="ignore", under="ignore"):
            products = (best.scores * scale[:, None]).astype(np.float32)
        _refuse_infinite(path, products)
        names = file.names(np.unique(best.rows))
        for node, found, scores in zip(some.to_pylist(), best.rows, products, strict=True):
            yield Neighbors(node, [names[row] for row in found.tolist()], scores)


def _refuse_infinite(path: Path, scores: Array) -> None:
    if not np.isfinite(scores).all():
        raise DataError(
            "holds vectors whose products are more than float32 holds (3.4e38); take the metric cosine, or write "
            "smaller numbers",
            path=path,
        )


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
    """Return rows of length 1; a row of zeros stays one."""
    largest = np.maximum(x.max(1), -x.min(1))
    far = (largest > 0) & ((largest > _FAR) | (largest < 1 / _FAR))
    if far.any():
        x = x / np.where(far, largest, np.float32(1))[:, None]
    length = np.linalg.norm(x, axis=1, keepdims=True)
    normalised: Array = x / np.where(length > 0, length, 1.0)
    return normalised


def _powers_of_two(x: Array) -> Array:
    """Return a power of two for each row that scales its numbers to -1..1 without rounding: float64 (n,)."""
    return np.ldexp(1.0, np.frexp(np.abs(x).max(1).astype(np.float64))[1])
