"""Write Parquet tables in shards: typed, compressed, never more than a row group in memory.

Ids of edges take byte-stream-split and lz4: 3.6 bytes an edge of 6 M sorted by source, read at 290 M edges/s; zstd has
3.3 bytes and is read at 148 (one thread, Zen 5, 2026). Features and texts take zstd: floats have bits that
only an entropy coder saves. Ids never get a dictionary, which would be as long as the column; ascending ones are
delta-packed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
import pyarrow.parquet as pq

from configs.errors import DataError
from tasks.arrays import Array, blocks
from tasks.storage.file_names import file_name
from tasks.storage.manifests import LEFT_OUT, SPLITS, Table

Column: TypeAlias = Any  # a NumPy array or an Arrow array

# A shard is a unit of parallel work, a row group a unit of memory. Both are bounded in rows and in bytes, since an
# edge has 8 bytes and a row of features may have thousands.
SHARD_ROWS, SHARD_BYTES = 1 << 22, 128 << 20
GROUP_ROWS, GROUP_BYTES = 1 << 20, 32 << 20
TEXT_BYTES = 4096
_ROWS = 1 << 18
_ASCENDING = frozenset({"node_id", "graph_id"})
_IDS = frozenset({"src", "dst"})


def table_folder(name: str) -> str:
    """Return the folder of a table below the artifact's: `nodes/TYPE`, `categories/TYPE/COLUMN`, ...

    Types, relations and columns come from data, so each is one file name here, whatever it holds.
    """
    kind, *names = name.split("/", 2 if name.startswith("categories/") else 1)
    return "/".join([kind, *map(file_name, names)])


class DatasetWriter(AbstractContextManager["DatasetWriter"]):
    """Writes the tables of a data set into an artifact's folder and remembers what they are.

    Compression runs in one background thread, so that reading the next chunk overlaps with writing the last.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.tables: dict[str, Table] = {}
        self.schemas: dict[str, pa.Schema] = {}
        self._names: set[str] = set()
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="parquet")

    def __exit__(self, *error: object) -> None:
        """End the background thread."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def table(self, name: str) -> TableWriter:
        """Open a table for chunks; a context manager. A name is given once."""
        assert name not in self._names, f"the table {name} is written twice"
        self._names.add(name)
        return TableWriter(self, name, self._pool)

    def write(self, name: str, columns: Mapping[str, Column]) -> None:
        """Write a whole table that is in memory already."""
        with self.table(name) as table:
            table.write(columns)


class TableWriter(AbstractContextManager["TableWriter"]):
    """One table: chunks of equal columns go in, shards come out.

    A column is a 1-D array, a 2-D array (rows, width) which becomes a fixed-size list, or an Arrow array. The first
    chunk decides the types; it may have no rows. No value is ever null.
    """

    def __init__(self, owner: DatasetWriter, name: str, pool: ThreadPoolExecutor) -> None:
        self.name = name
        self.folder = table_folder(name)
        self.num_rows = 0
        self._owner = owner
        self._pool = pool
        self._schema: pa.Schema | None = None
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._writer: pq.ParquetWriter | None = None
        self._shard_rows: list[int] = []
        self._shards: list[str] = []
        self._job: Future[None] | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the table, or only close its file after an error."""
        if error is None:
            self._finish()
        elif self._writer is not None:
            if self._job is not None:
                self._job.exception()
            self._writer.close()

    def write(self, columns: Mapping[str, Column]) -> None:
        """Append a chunk of rows. The arrays may be reused by the caller only after the table is closed."""
        arrays = {name: _to_arrow(f"{self.name}[{name}]", column) for name, column in columns.items()}
        if self._schema is None:
            self._start(arrays)
        assert self._schema is not None
        chunk = pa.table(list(arrays.values()), schema=self._schema)
        self._pending.append(chunk)
        self._pending_rows += chunk.num_rows
        self.num_rows += chunk.num_rows
        if self._pending_rows >= self._group_rows:
            self._flush(whole_groups=True)

    def _start(self, arrays: Mapping[str, pa.Array]) -> None:
        self._schema = pa.schema([pa.field(name, array.type, nullable=False) for name, array in arrays.items()])
        width = sum(_row_bytes(field.type, field.name) for field in self._schema)
        self._group_rows = max(1, min(GROUP_ROWS, GROUP_BYTES // width))
        self._max_shard_rows = max(self._group_rows, min(SHARD_ROWS, SHARD_BYTES // width))
        self._max_shard_rows -= self._max_shard_rows % self._group_rows
        (self._owner.folder / self.folder).mkdir(parents=True, exist_ok=True)

    def _flush(self, whole_groups: bool) -> None:
        rows = pa.concat_tables(self._pending)
        keep = rows.num_rows % self._group_rows if whole_groups else 0
        ready = rows.slice(0, rows.num_rows - keep)
        self._pending = [rows.slice(rows.num_rows - keep)] if keep else []
        self._pending_rows = keep
        if self._job is not None:  # at most one batch is on its way: memory stays bounded, and errors come out
            self._job.result()
        self._job = self._pool.submit(self._write_rows, ready)

    def _write_rows(self, rows: pa.Table) -> None:
        at = 0
        while True:
            if self._writer is None:
                self._open_shard()
            assert self._writer is not None
            take = min(rows.num_rows - at, self._max_shard_rows - self._shard_rows[-1])
            self._writer.write_table(rows.slice(at, take), row_group_size=self._group_rows)
            self._shard_rows[-1] += take
            at += take
            if self._shard_rows[-1] == self._max_shard_rows:
                self._writer.close()
                self._writer = None
            if at == rows.num_rows:
                return

    def _open_shard(self) -> None:
        assert self._schema is not None
        path = f"{self.folder}/{len(self._shards):05d}.parquet"
        storage = _storage(self._schema)
        self._writer = pq.ParquetWriter(
            self._owner.folder / path,
            self._schema,
            compression={path: kind for path, (_, kind) in storage.items()},
            compression_level={path: 1 for path, (_, kind) in storage.items() if kind == "zstd"},
            use_dictionary=False,
            column_encoding={path: encoding for path, (encoding, _) in storage.items()},
            write_statistics=[field.name for field in self._schema if not pa.types.is_nested(field.type)],
        )
        self._shards.append(path)
        self._shard_rows.append(0)

    def _finish(self) -> None:
        assert self._schema is not None, f"{self.name}: a table needs at least one chunk (it may have no rows)"
        if self._pending_rows or self._job is None:
            self._flush(whole_groups=False)
        assert self._job is not None
        self._job.result()
        if self._writer is not None:
            self._writer.close()
        self._owner.schemas[self.name] = self._schema
        self._owner.tables[self.name] = Table(
            num_rows=self.num_rows,
            columns={field.name: str(field.type) for field in self._schema},
            shards=tuple(self._shards),
            shard_rows=tuple(self._shard_rows),
        )


def write_ids(writer: DatasetWriter, kind: str, keys: pa.Array) -> None:
    """Write `ids/TYPE`: what users call the nodes, in their order."""
    with writer.table(f"ids/{kind}") as table:
        for rows in blocks(len(keys), _ROWS):
            part = keys.slice(rows.start, rows.stop - rows.start)
            table.write({"node_id": np.arange(rows.start, rows.stop, dtype=np.int64), "original_id": part})


def _to_arrow(name: str, column: Column) -> pa.Array:
    if isinstance(column, pa.Array):
        return column
    if column.ndim == 1:
        return pa.array(column)
    assert column.ndim == 2, column.shape
    if column.shape[1] == 0:  # Arrow divides by the width, which would end the interpreter
        raise DataError(f"has no columns (its shape is {column.shape}); leave it out", path=name)
    flat = pa.array(np.ascontiguousarray(column).reshape(-1))
    kind = pa.list_(pa.field("element", flat.type, nullable=False), column.shape[1])
    return pa.FixedSizeListArray.from_arrays(flat, type=kind)


def _row_bytes(kind: pa.DataType, name: str = "") -> int:
    """Bytes of a value; names are taken to have 32, and texts so many that a shard of them is encoded in minutes."""
    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size) * _row_bytes(kind.value_type)
    if pa.types.is_large_string(kind) and name != "original_id":
        return TEXT_BYTES
    return max(1, kind.bit_width // 8) if pa.types.is_primitive(kind) else 32


def _storage(schema: pa.Schema) -> dict[str, tuple[str, str]]:
    """Return encoding and compression of each column, by its path in the file."""
    storage = {}
    for field in schema:
        nested = pa.types.is_fixed_size_list(field.type)
        kind = field.type.value_type if nested else field.type
        path = f"{field.name}.list.element" if nested else field.name
        if field.name in _ASCENDING:
            storage[path] = ("DELTA_BINARY_PACKED", "lz4")
        elif pa.types.is_floating(kind) or (pa.types.is_integer(kind) and kind.bit_width >= 32):
            storage[path] = ("BYTE_STREAM_SPLIT", "lz4" if field.name in _IDS else "zstd")
        else:
            storage[path] = ("PLAIN", "zstd")
    return storage


def written_pairs(writer: DatasetWriter, relation: int | None = None) -> Callable[[], Iterator[tuple[Array, Array]]]:
    """Return the reader of the edges of all splits and of none, whose tables are closed; of those of a relation."""

    # Edges that are left out name no relation.
    splits = (*SPLITS, *(() if relation is not None else (LEFT_OUT,)))
    columns = ["src", "dst", *(() if relation is None else ("relation",))]

    def read() -> Iterator[tuple[Array, Array]]:
        for split in splits:
            for path in sorted((writer.folder / "split" / split).glob("*.parquet")):
                with pq.ParquetFile(path) as file:
                    for group in range(file.num_row_groups):
                        rows = file.read_row_group(group, columns=columns)
                        if relation is not None:
                            rows = rows.filter(compute.equal(rows["relation"], relation))
                        yield rows["src"].to_numpy(), rows["dst"].to_numpy()

    return read


def written_columns(writer: DatasetWriter, split: str, columns: Sequence[str]) -> list[Array]:
    """Return columns of a split's table, which is closed."""
    paths = sorted((writer.folder / "split" / split).glob("*.parquet"))
    table = pa.concat_tables([pq.read_table(path, columns=list(columns)) for path in paths])
    return [table[name].to_numpy() for name in columns]
