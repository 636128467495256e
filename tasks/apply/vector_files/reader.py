"""Files of vectors with their ids, in each of the formats that `graphmill export embeddings` writes.

Those of other programs will do. An id names one vector: that is seen to while the file is first read, for which the
ids, and some 32 bytes for each, lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute

from configs.errors import DataError
from configs.source_files import is_file
from tasks.apply.vector_files.formats import ENDINGS
from tasks.apply.vector_files.rows import BinaryRows, MatrixRows, ParquetRows, TextRows, VectorRows, safetensors_rows
from tasks.ingest.ids.id_index import IdIndex
from tasks.readers.columns import is_text
from tasks.readers.limits import BATCH_BYTES
from tasks.storage.graph_store import Array
from tasks.storage.ids import as_kind

_CHUNK_ROWS = 1 << 15
_OPENERS: dict[str, Callable[[Path], VectorRows]] = {
    ENDINGS["parquet"]: ParquetRows,
    ".pq": ParquetRows,
    ENDINGS["npy"]: MatrixRows.of_npy,
    ENDINGS["safetensors"]: safetensors_rows,
    ENDINGS["word2vec"]: TextRows,
    ENDINGS["word2vec-binary"]: BinaryRows,
}


class VectorFile:
    """Vectors with their ids."""

    def __init__(self, path: Path) -> None:
        """Open it. Raises DataError naming what is missing."""
        self.path = path
        if not is_file(path):
            raise DataError("there is no such file; make one with: graphmill export embeddings", path=path)
        if path.suffix not in _OPENERS:
            raise DataError(f"vectors are in a file that ends with {' or '.join(ENDINGS.values())}", path=path)
        self._file = _OPENERS[path.suffix](path)
        self.num_rows, self.dim = self._file.num_rows, self._file.dim
        if not self.num_rows:
            raise DataError("has no rows: there is no vector to look for; export them again", path=path)
        self.id_type = pa.string() if is_text(self._file.id_type) else pa.int64()
        self._ids_checked = False

    @property
    def rows_at_a_time(self) -> int:
        """How many vectors are held at once: so many bytes at most."""
        return max(1, min(_CHUNK_ROWS, BATCH_BYTES // (4 * self.dim)))

    def chunks(self) -> Iterator[tuple[int, pa.Array, Array]]:
        """Yield first row, ids and vectors, float32 (n, dim).

        Raises DataError naming a row of other numbers, of no id, or of one that another row has.
        """
        first, seen = 0, None if self._ids_checked else IdIndex()
        for raw, rows in self._file.rows(self.rows_at_a_time):
            ids = self._checked_ids(raw, first)
            row_numbers = np.arange(first, first + len(ids))
            place = (
                row_numbers if seen is None else seen.add(ids)
            )  # ids that are new get the next numbers: of their rows
            again = np.flatnonzero(place != row_numbers)
            if len(again):
                (path, column), row = self._file.ids, int(again[0])
                why = f"the id {ids[row].as_py()!r} stands in row {int(place[row])} already, and an id names one vector"
                way_out = "leave one of the rows out, or give them ids of their own"
                raise DataError(f"{why}; {way_out}", path=path, row=first + row, column=column)
            yield first, ids, self._checked(rows, first)
            first += len(ids)
        self._ids_checked = True

    def _checked_ids(self, ids: pa.Array, first: int) -> pa.Array:
        """Return ids as texts or int64. Raises DataError where one is missing, or more than int64 holds."""
        path, column = self._file.ids
        if ids.null_count:
            row = first + compute.index(ids.is_null(), True).as_py()
            raise DataError("has no id; each vector needs one", path=path, row=row, column=column)
        try:
            return ids.cast(self.id_type)
        except pa.ArrowInvalid:
            place = int(np.argmax(np.asarray(ids) > np.iinfo(np.int64).max))
            why = f"the id {ids[place]} is more than int64 holds; write such ids as texts"
            raise DataError(why, path=path, row=first + place, column=column) from None

    def _checked(self, rows: Array, first: int) -> Array:
        """Return vectors as float32. Raises DataError where one holds NaN, or more than float32 can."""
        with np.errstate(over="ignore"):
            x = np.asarray(rows, np.float32)
        wrong = np.flatnonzero(~np.isfinite(x).all(1))
        if len(wrong):
            row = int(wrong[0])
            why = f"holds {rows[row][~np.isfinite(x[row])][0]:g}; vectors are of numbers that float32 holds"
            way_out = "(up to 3.4e38): leave the row out, or write smaller numbers"
            raise DataError(f"{why} {way_out}", path=self.path, row=first + row, column=self._file.column)
        return x

    def as_ids(self, nodes: Any) -> pa.Array:
        """Return ids that somebody asks for as the file has them. Raises DataError for one that is none here."""
        asked = nodes if isinstance(nodes, pa.Array) else pa.array([str(node) for node in nodes], pa.string())
        if asked.null_count:
            raise DataError("an id that is asked for is missing (null)", path=self.path)
        try:
            return as_kind(asked, self.id_type)
        except DataError as error:
            raise DataError(str(error), path=self.path) from None

    def find(self, asked: pa.Array) -> tuple[Array, Array]:
        """Return the rows of ids (`as_ids`), int64 (q,), and their vectors, float32 (q, dim).

        Raises DataError naming one that is not there.
        """
        rows, vectors = np.full(len(asked), -1, np.int64), np.zeros((len(asked), self.dim), np.float32)
        example: list[Any] = []
        for first, ids, chunk in self.chunks():
            example = example or ids[:3].to_pylist()
            place = compute.index_in(asked, value_set=ids)
            here = np.flatnonzero(np.asarray(compute.is_valid(place)))
            at = np.asarray(compute.fill_null(place, 0))[here]
            rows[here], vectors[here] = at + first, chunk[at]
        missing = np.flatnonzero(rows < 0)
        if not len(missing):
            return rows, vectors
        name = asked[int(missing[0])].as_py()
        of_types: list[str] = []  # ids of several types are `TYPE:name`
        for ids in self._file.names(self.rows_at_a_time) if pa.types.is_string(self.id_type) else ():
            of_types += ids.filter(compute.ends_with(ids, f":{name}")).to_pylist()
        hint = f"; is it {' or '.join(map(repr, of_types[:3]))}?" if of_types else ""
        some = ", ".join(map(repr, example))
        raise DataError(f"has no node {name!r}{hint}; it has {self.num_rows:,} such as {some}", path=self.path)

    def names(self, rows: Array) -> dict[int, Any]:
        """Return the ids of rows, int64 (n,) ascending."""
        names: dict[int, Any] = {}
        first = 0
        for ids in self._file.names(self.rows_at_a_time):
            low, high = np.searchsorted(rows, [first, first + len(ids)])
            some = rows[low:high]
            names.update(zip(some.tolist(), ids.take(pa.array(some - first)).to_pylist(), strict=True))
            first += len(ids)
        return names
