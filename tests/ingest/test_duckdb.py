"""DuckDB files as strangers may have made them, and as other programs leave them."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from configs.errors import DataError
from tasks.ingest.tables.paths import named_files
from tasks.readers.duckdb_tables import duckdb_columns, duckdb_tables, read_duckdb


def write(path: Path, *statements: str) -> Path:
    with duckdb.connect(str(path)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path


def rows(path: Path, table: str = "t", *columns: str) -> dict[str, list[Any]]:
    return pa.Table.from_batches(read_duckdb(path, table, columns or ("a",))).to_pydict()


@pytest.mark.parametrize("name", ["shop.duckdb", "shop.db"])
def test_an_sqlite_file_is_no_reason_to_fetch_an_extension(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE t (a)")
    database.close()
    (tmp_path / "link.duckdb").symlink_to(path)

    def resolve(*args: Any) -> None:
        raise AssertionError(f"the network is asked: {args}")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    for asked in (path, tmp_path / "link.duckdb"):
        with pytest.raises(DataError, match="is no DuckDB file, but an SQLite database; export its tables"):
            duckdb_tables(asked)


def test_nothing_of_a_file_reads_other_files_or_loads_extensions(tmp_path: Path) -> None:
    view = "CREATE VIEW v AS SELECT * FROM read_csv('/etc/passwd')"
    path = write(tmp_path / "t.duckdb", "CREATE TABLE t AS SELECT 1 AS a", view)
    assert duckdb_tables(path) == ["t"]
    with pytest.raises(DataError, match="has no table 'v'"):
        rows(path, "v")
    from tasks.readers.duckdb_tables import open_duckdb

    changes = ("ATTACH '/tmp/other.duckdb'", "SET enable_external_access = true", "COPY t TO '/tmp/never.csv'")
    for statement in ("SELECT * FROM v", "LOAD httpfs", "INSTALL httpfs", *changes):
        with pytest.raises(DataError, match="cannot be read by DuckDB"), open_duckdb(path) as connection:
            connection.execute(statement).fetchall()


@pytest.mark.parametrize("name", ["md:x", "sqlite:x", "s3:x", "a#b%20 c", "main", "temp", "system", "t"])
def test_names_of_files_are_names(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "plain.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    path.rename(tmp_path / f"{name}.duckdb")
    monkeypatch.chdir(tmp_path)
    assert duckdb_columns(Path(f"{name}.duckdb"), "t") == ["a"]
    assert rows(Path(f"{name}.duckdb")) == {"a": [1]}


def test_a_question_mark_begins_options(tmp_path: Path) -> None:
    write(tmp_path / "plain.duckdb", "CREATE TABLE t AS SELECT 1 AS a").rename(tmp_path / "a?b.duckdb")
    with pytest.raises(DataError, match=r"opens no file with \? in its name"):
        duckdb_tables(tmp_path / "a?b.duckdb")


KILLED = """
import duckdb, os, sys
connection = duckdb.connect(sys.argv[1])
connection.execute("SET checkpoint_threshold = '1GB'")
connection.execute("INSERT INTO t VALUES (2)")
os._exit(0)
"""


def test_committed_rows_beside_the_file_are_part_of_what_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "t.duckdb", "CREATE TABLE t AS SELECT 1 AS a")
    assert named_files((str(path),), []) == [("t.duckdb", path)]
    subprocess.run([sys.executable, "-c", KILLED, str(path)], check=True)
    log = tmp_path / "t.duckdb.wal"
    assert named_files((str(path),), []) == [("t.duckdb", path), ("t.duckdb.wal", log)]
    assert rows(path) == {"a": [1, 2]}
    assert named_files((str(tmp_path),), []) == [("t.duckdb", path), ("t.duckdb.wal", log)]
    for ending in (".wal.checkpoint", ".wal.recovery"):  # of a checkpoint that was cut off
        more = log.rename(f"{path}{ending}")
        assert named_files((str(path),), []) == [("t.duckdb", path), (f"t.duckdb{ending}", more)]
        more.rename(log)
    (tmp_path / "links").mkdir()
    link = tmp_path / "links" / "l.duckdb"
    link.symlink_to(path)
    assert named_files((str(link),), []) == [("l.duckdb", link), ("l.duckdb.wal", log)]
    assert rows(link) == {"a": [1, 2]}


OPENED_AGAIN = """
import sys
from pathlib import Path
from configs.errors import DataError
from tasks.readers.duckdb_tables import duckdb_tables, read_duckdb
gathered = []
try:
    list(read_duckdb(Path(sys.argv[1]), "t", ["a"]))
except DataError as error:
    gathered.append(error)
print(duckdb_tables(Path(sys.argv[1])), *gathered)
"""


def test_a_mistake_that_is_gathered_does_not_keep_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "t.duckdb", "CREATE TABLE t AS SELECT repeat('x', 70000) AS a FROM range(10)")
    command = [sys.executable, "-c", OPENED_AGAIN, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=True)
    assert "['t']" in done.stdout
    assert "the text has 70,000 bytes" in done.stdout


@pytest.mark.parametrize(
    "value",
    [
        "1::hugeint", "1::uhugeint", "(-1e38)::hugeint", "'ab'::blob", "'101'::bit", "uuid()", "interval 1 day",
        "time '10:00:00'", "timetz '10:00:00+02'", "'a'::enum('a', 'b')", "{'a': 1}", "map {'a': 1}", "[{'a': 1}]",
        "union_value(num := 2)", "1::bignum", "1::variant", "NULL",
    ],
)  # fmt: skip
def test_types_are_read_or_refused_by_name(value: str, tmp_path: Path) -> None:
    from configs.load import build_recipe
    from tasks.ingest.stage import STAGE
    from tasks.stage import run_stage
    from tasks.storage.home import Home

    people = f"CREATE TABLE people AS SELECT range AS id, range % 2 AS y, {value} AS c FROM range(30)"
    visits = "CREATE TABLE visits AS SELECT range AS id, range % 30 AS who FROM range(60)"
    path = str(write(tmp_path / "t.duckdb", people, visits))
    refused = []
    for kind in ("time", None):
        tables = {
            "people": {"files": path, "key": "id", "columns": {"c": kind} if kind else {}},
            "visits": {"files": path, "key": "id", "foreign": {"who": "people"}},
        }
        predict = {"table": "people", "label": "y", "split": {"valid": 0.2, "test": 0.2}}
        dataset = {"name": "database", "tables": tables, "predict": predict}
        recipe = build_recipe({"name": "t", "dataset": dataset, "model": {"name": "heterosage"}})
        try:
            run_stage(STAGE, recipe, {}, Home.open(str(tmp_path / "home")))
        except DataError as error:
            refused.append(str(error))
    assert all("column c" in text for text in refused)
