"""Read the Parquet tables that ingest wrote. `tasks/ingest/README.md` documents the tables and their columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from configs.errors import IntegrityError
from tasks.arrays import Array
from tasks.storage.artifacts import MANIFEST_NAME
from tasks.storage.home_files.fetched import here
from tasks.storage.manifests import DatasetManifest, Table


@dataclass(frozen=True)
class ShardRef:
    """One Parquet file of a table; small, so that it can be sent to a worker process."""

    path: str
    sha256: str
    """Digest of the file: names results that were computed from it."""
    first_row: int
    """Row of the table that is the shard's first."""
    num_rows: int
    columns: tuple[str, ...]


class DatasetStore:
    """Tables of a data set by name: `nodes/TYPE`, `edges/SOURCE__RELATION__TARGET`, `split/train`, ..."""

    def __init__(self, folder: Path, manifest: DatasetManifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def open(cls, folder: Path) -> DatasetStore:
        """Open an ingest artifact."""
        return cls(folder, DatasetManifest.model_validate_json(here(folder / MANIFEST_NAME).read_bytes()))

    def __contains__(self, table: str) -> bool:
        return table in self.manifest.tables

    def table(self, name: str) -> Table:
        """Return a table's description. Raises KeyError naming what there is."""
        try:
            return self.manifest.tables[name]
        except KeyError:
            names = ", ".join(sorted(self.manifest.tables))
            raise KeyError(f"the data set has no table {name!r}; it has {names}") from None

    def shards(self, name: str) -> list[ShardRef]:
        """Return the table's files in row order."""
        table = self.table(name)
        refs, first_row = [], 0
        for path, num_rows in zip(table.shards, table.shard_rows, strict=True):
            sha256 = self.manifest.files[path].sha256
            refs.append(ShardRef(str(self.folder / path), sha256, first_row, num_rows, tuple(table.columns)))
            first_row += num_rows
        return refs

    def row_groups(self, name: str, columns: Sequence[str]) -> Iterator[tuple[int, pa.Table]]:
        """Yield a table piece by piece, however large: the number of a piece's first row, and its columns."""
        for shard in self.shards(name):
            first = shard.first_row
            for group in iter_row_groups(shard, columns):
                yield first, group
                first += group.num_rows

    def read(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Return a whole table (or some of its columns) in memory."""
        return pa.concat_tables([read_shard(ref, columns) for ref in self.shards(name)])

    def column(self, name: str, column: str) -> Array:
        """Return one column as NumPy: 1-D, or 2-D for fixed-size lists."""
        return to_numpy(self.read(name, [column]).column(column))


def read_shard(ref: ShardRef, columns: Sequence[str] | None = None) -> pa.Table:
    """Return a shard (or some of its columns). Raises IntegrityError where the file does not fit the manifest."""
    with _open(ref) as file:
        return file.read(columns=None if columns is None else list(columns))


def iter_row_groups(ref: ShardRef, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
    """Yield a shard piece by piece: bounded memory, however large the shard. Raises IntegrityError like read_shard."""
    with _open(ref) as file:
        for group in range(file.num_row_groups):
            yield file.read_row_group(group, columns=None if columns is None else list(columns))


def _open(ref: ShardRef) -> pq.ParquetFile:
    file = pq.ParquetFile(here(Path(ref.path)))
    if file.metadata.num_rows != ref.num_rows:
        file.close()
        raise IntegrityError(f"{ref.path} has {file.metadata.num_rows:,} rows, the manifest says {ref.num_rows:,}")
    return file


def matrix(column: pa.Array | pa.ChunkedArray) -> Array:
    """Return a fixed-size-list column as a 2-D array (rows, list size); one chunk is not copied."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks != 1:
            parts = [matrix(chunk) for chunk in column.chunks]
            width = column.type.list_size
            return np.concatenate(parts) if parts else np.empty((0, width), column.type.value_type.to_pandas_dtype())
        column = column.chunk(0)
    assert pa.types.is_fixed_size_list(column.type), column.type
    flat = column.flatten().to_numpy(zero_copy_only=False)
    return flat.reshape(len(column), column.type.list_size)


def to_numpy(column: pa.Array | pa.ChunkedArray) -> Array:
    """Return any column as NumPy: 2-D for fixed-size lists, objects for strings, else 1-D."""
    if pa.types.is_fixed_size_list(column.type):
        return matrix(column)
    if isinstance(column, pa.ChunkedArray):
        return column.to_numpy()
    return column.to_numpy(zero_copy_only=False)
