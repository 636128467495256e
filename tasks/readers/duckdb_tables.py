"""Tables of a DuckDB file, batch by batch; needs the package duckdb, which graphmill does without."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from configs.source_files import open_file
from tasks.readers.columns import check_columns, check_names, plain_batch

_BATCH_ROWS = 1 << 16


@contextmanager
def open_duckdb(path: Path) -> Iterator[Any]:
    """Open a DuckDB file for reading; gives a connection. Raises DataError: no such package, no such file, damage."""
    try:
        import duckdb
    except ImportError:
        raise DataError(
            "is a DuckDB file, and the package duckdb is not installed: pip install duckdb, or export its tables "
            "(EXPORT DATABASE 'folder' (FORMAT parquet))",
            path=path,
        ) from None
    open_file(path).close()
    try:
        with duckdb.connect(str(path), read_only=True) as connection:
            connection.execute("SET enable_external_access = false")  # a view of it may read no other file
            yield connection
    except duckdb.Error as error:
        raise DataError(f"cannot be read by DuckDB: {str(error)[:400]}", path=path) from error


def duckdb_tables(path: Path) -> list[str]:
    """Return the names of a file's tables in the main schema, sorted. Raises DataError."""
    with open_duckdb(path) as connection:
        return _tables(connection)


def _tables(connection: Any) -> list[str]:
    found = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' AND NOT internal ORDER BY table_name"
    )
    return [name for (name,) in found.fetchall()]


def duckdb_columns(path: Path, table: str) -> list[str]:
    """Return the columns of a table. Raises DataError."""
    with open_duckdb(path) as connection:
        return _columns(connection, path, table)


def _columns(connection: Any, path: Path, table: str) -> list[str]:
    known = _tables(connection)
    if table not in known:
        raise DataError(f"has no table {table!r}{did_you_mean(table, known)}; it has {listed(known)}", path=path)
    names = [name for name, *_ in connection.execute(f"DESCRIBE {_quoted(table)}").fetchall()]
    check_names(names, path)
    return names


def read_duckdb(path: Path, table: str, wanted: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield batches of some columns of a table, plain, in the order of its rows. Raises DataError."""
    with open_duckdb(path) as connection:
        check_columns(path, wanted, _columns(connection, path, table))
        names = ", ".join(map(_quoted, wanted)) or "1"
        found = connection.sql(f"SELECT {names} FROM {_quoted(table)}").to_arrow_reader(_BATCH_ROWS)
        row = 0
        for batch in found:
            yield plain_batch(batch, path, row)
            row += batch.num_rows


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
