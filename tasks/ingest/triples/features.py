"""Numbers of each entity, or relation: a matrix in the order of a list, or a Parquet table under their ids.

Memory: the matrix of all where it comes from a table, a chunk where it lies on disk as one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from tasks.arrays import Array, blocks
from tasks.ingest.features import finite_float32
from tasks.ingest.tables.batches import TableBatch
from tasks.ingest.tables.columns import checked_ids, float32, numbers
from tasks.ingest.tables.problems import Problems
from tasks.ingest.triples.names import UNKNOWN, Names
from tasks.readers.arrays.npy import NpyFile, check_row
from tasks.readers.limits import check_memory
from tasks.readers.parquet import open_parquet, read_parquet

_CHUNK_BYTES = 8 << 20


def open_features(path: Path, id_column: str, names: Names) -> FeatureMatrix | FeaturesById:
    """Open a file of features. Raises DataError."""
    if path.suffix.lower() == ".npy":
        return FeatureMatrix(path, names)
    if path.suffix.lower() in (".parquet", ".pq"):
        return FeaturesById(path, id_column, names)
    raise DataError(f"is neither .npy nor .parquet, which features of {names.plural} are read from", path=path)


def _step(width: int) -> int:
    return max(1, _CHUNK_BYTES // (4 * width))


class FeatureMatrix:
    """A `.npy` matrix: row i is that of entity i of the list, or of the id i."""

    def __init__(self, path: Path, names: Names) -> None:
        self.path, self.names = path, names
        header = NpyFile(path).header()
        check_row(header, path)
        if len(header.shape) != 2:
            raise DataError(f"has the shape {header.shape}; ({names.plural}, columns) is needed", path=path)
        self.count, self.width = header.shape
        self.ids: Array | None = None
        if names.listed:
            if self.count != names.count:
                raise DataError(
                    f"has {self.count:,} rows, {names.path} names {names.count:,} {names.plural}", path=path
                )
        elif names.index.is_text:
            raise DataError(
                f"has rows without ids, and the {names.plural} are texts: give their list in the order of the rows "
                f"(dataset.{names.plural}), or Parquet with a column of ids",
                path=path,
            )
        else:
            self.ids = np.asarray(names.keys())

    def rows(self, owners: Array) -> Iterator[Array]:
        """Yield the rows of some, by the numbers that their names have: (n, width) float32, in portions.

        Raises DataError: a row is missing, or holds what is no finite number.
        """
        values = NpyFile(self.path).mapped()
        for part in blocks(len(owners), _step(self.width)):
            rows = owners[part] if self.ids is None else self.ids[owners[part]]
            beyond = np.flatnonzero(rows >= self.count)
            if len(beyond):
                raise DataError(
                    f"has {self.count:,} rows, and none for the {self.names.what} {rows[beyond[0]]}", path=self.path
                )
            yield finite_float32(values[rows], self.path, rows)


class FeaturesById:
    """A Parquet table with a column of ids; all others are numbers, or lists of numbers of one length."""

    def __init__(self, path: Path, id_column: str, names: Names) -> None:
        self.path, self.names = path, names
        with open_parquet(path) as file:
            columns, rows = list(file.schema_arrow.names), file.metadata.num_rows
        if id_column not in columns:
            hint = did_you_mean(id_column, columns)
            raise DataError(
                f"has no column {id_column!r}{hint}; it has {listed(columns)} (dataset.feature_id)", path=path
            )
        self.columns = [name for name in columns if name != id_column]
        if not self.columns:
            raise DataError(f"has no columns beside {id_column!r}", path=path)
        self.values: Array = np.empty((0, 0), np.float32)
        self.known = np.zeros(names.count, np.bool_)
        self._read(id_column, rows)
        self.width = self.values.shape[1]

    def _read(self, id_column: str, num_rows: int) -> None:
        problems, first = Problems(), 0
        widths: dict[str, int | None] = {}
        for data in read_parquet(self.path, [id_column, *self.columns]):
            batch = TableBatch(self.path, first, data, problems)
            first += data.num_rows
            codes = self._codes(batch, id_column)
            parts = []
            for name in self.columns:
                values = numbers(batch, name, width=widths.get(name), way_out="; fill it in, or leave the column out")
                widths[name] = values.shape[1] if values.ndim == 2 else None
                parts.append(float32(batch, name, values).reshape(len(values), -1))
            if problems:
                continue
            rows = np.concatenate(parts, axis=1)
            if self.values.size == 0:
                check_memory(4 * self.names.count * rows.shape[1], "the matrix of features", self.path)
                self.values = np.zeros((self.names.count, rows.shape[1]), np.float32)
            there = codes >= 0
            self.values[codes[there]] = rows[there]
        problems.raise_any()
        if not num_rows:
            raise DataError("has no rows", path=self.path)

    def _codes(self, batch: TableBatch, id_column: str) -> Array:
        """Return the number of each row's entity, `UNKNOWN` for those of no triple; a second row is gathered."""
        ids, none = checked_ids(batch, id_column)
        codes = np.full(len(ids), UNKNOWN, np.int64)
        good = np.ones(len(ids), np.bool_) if none is None else ~none
        codes[good] = self.names.find(ids.filter(pa.array(good)))
        rows = np.flatnonzero(codes >= 0)
        again = np.zeros(len(ids), np.bool_)
        _, firsts = np.unique(codes[rows], return_index=True)
        again[rows] = True
        again[rows[firsts]] = False
        again[rows] |= self.known[codes[rows]]
        self.known[codes[rows]] = True
        batch.wrong(again, id_column, "the id stands twice", lambda row: f"the id {ids[row].as_py()!r} stands twice")
        return codes

    def rows(self, owners: Array) -> Iterator[Array]:
        """See FeatureMatrix."""
        missing = np.flatnonzero(~self.known[owners])
        if len(missing):
            name = self.names.keys()[int(owners[missing[0]])].as_py()
            raise DataError(f"has no row for {len(missing):,} {self.names.plural}, {name!r} the first", path=self.path)
        for part in blocks(len(owners), _step(self.width)):
            yield self.values[owners[part]]
