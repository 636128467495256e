"""Tables of a DuckDB file, batch by batch; needs the package duckdb, which graphmill does without."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from configs.errors import DataError
from configs.matching import did_you_mean, listed
from configs.source_files import open_file
from tasks.readers.columns import check_columns, check_names, plain_batch
from tasks.readers.duckdb_files import MAGIC

_BATCH_ROWS = 1 << 16
_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "enable_external_access": False,
    "python_enable_replacements": False,
    "lock_configuration": True,
}
"""Nothing in a file fetches or loads an extension, or reads another file."""


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
    _check_magic(path)
    try:
        # By its whole path: `md:x` would be an address, and a link's write-ahead log lies beside what it leads to.
        with duckdb.connect(os.path.realpath(path), read_only=True, config=_CONFIG) as connection:
            yield connection
    except duckdb.Error as error:
        raise DataError(f"cannot be read by DuckDB: {str(error)[:400]}", path=path) from error


def _check_magic(path: Path) -> None:
    """Raise DataError for a file of another kind: DuckDB would fetch an extension for it from the network."""
    with open_file(path) as file:
        start = file.read(16)
    if start[8:12] != MAGIC:
        kinds = {b"SQLite format 3\0": "an SQLite database", b"PAR1": "a Parquet file"}
        what = next((kind for magic, kind in kinds.items() if start.startswith(magic)), "something else")
        raise DataError(f"is no DuckDB file, but {what}; export its tables as Parquet or CSV", path=path)
    if "?" in os.path.realpath(path):  # options begin there
        raise DataError("DuckDB opens no file with ? in its name or folder; rename it", path=path)


def duckdb_tables(path: Path) -> list[str]:
    """Return the names of a file's tables in the main schema, sorted. Raises DataError."""
    with open_duckdb(path) as connection:
        rows = connection.execute(
            "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' AND NOT internal ORDER BY table_name"
        )
        return [name for (name,) in rows.fetchall()]


def duckdb_columns(path: Path, table: str) -> list[str]:
    """Return the columns of a table. Raises DataError."""
    tables = duckdb_tables(path)
    if table not in tables:
        raise DataError(f"has no table {table!r}{did_you_mean(table, tables)}; it has {listed(tables)}", path=path)
    with open_duckdb(path) as connection:
        names = [name for name, *_ in connection.execute(f"DESCRIBE {_place(connection, table)}").fetchall()]
    check_names(names, path)
    return names


def read_duckdb(
    path: Path, table: str, columns: Sequence[str], documents: Sequence[str] = ()
) -> Iterator[pa.RecordBatch]:
    """Yield batches of some columns of a table, plain, in the order of its rows; `documents`: see `plain_batch`.

    Raises DataError.
    """
    check_columns(path, columns, duckdb_columns(path, table))
    with open_duckdb(path) as connection:
        names = ", ".join(map(_quoted, columns)) or "1"
        reader = connection.sql(f"SELECT {names} FROM {_place(connection, table)}").to_arrow_reader(_BATCH_ROWS)
        row = 0
        try:
            for batch in reader:
                yield plain_batch(batch, path, row, documents=documents)
                row += batch.num_rows
        finally:
            reader.close()  # a gathered error keeps it, and the next one to open the file would wait for it for ever


def _place(connection: Any, table: str) -> str:
    """Return a table's whole name: a file called main.duckdb makes `main.orders` ambiguous."""
    [(database,)] = connection.execute("SELECT current_database()").fetchall()
    return f"{_quoted(database)}.main.{_quoted(table)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
