"""Where users' files go: names that would be addresses; Parquet, whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from configs.errors import UserError
from configs.source_files import user_path
from flows.backfill.report import write_report
from flows.commands.outputs.layouts import places
from flows.commands.outputs.neighbors import write_neighbors
from tasks.apply.run import OutputRequest
from tasks.publish.tracking.store_uris import home_uri, how_to_open, run_url_in, sqlite_file
from tasks.storage.file_names import beside
from tasks.storage.home import Home
from tasks.storage.outputs.tables import ParquetOutput

ADDRESSES = ["s3://bucket/x.parquet", "gs://bucket/x.parquet", "http://h/x.parquet", "abfss://c@a/x", "hdfs:/x.parquet"]


@pytest.mark.parametrize("text", [*ADDRESSES, "file:///tmp/x.parquet"])
def test_an_address_is_no_path(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in (text, Path(text)):
        with pytest.raises(UserError, match="is an address, and graphmill reads and writes files"):
            user_path(given)
        with pytest.raises(UserError, match="is an address"):
            Home.open(given)
        with pytest.raises(UserError, match="is an address"):
            places([Path(given)], "x")
    with pytest.raises(UserError, match=r"is an address|must end with"):
        write_neighbors([], Path(text))
    with pytest.raises(UserError, match="is an address"):
        write_report(None, Path(text))  # type: ignore[arg-type]
    for what in ("predictions", "embeddings", "model"):
        with pytest.raises(UserError, match=r"is an address"):
            OutputRequest(what=what, output=text)._place("x", {"parquet": ".parquet"})  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_paths_that_look_like_addresses() -> None:
    for text in ("a:b", "x/s3:/y", "run:1.csv", "/s3:/x", "C:/x"):
        assert user_path(text) == Path(text)


def test_a_question_mark_in_a_homes_name_is_refused_before_it_is_made(tmp_path: Path) -> None:
    for place in (tmp_path / "q?x", tmp_path / "a?" / "home"):
        with pytest.raises(UserError, match="has a question mark in its name"):
            Home.open(place)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["a#b", "p%20c d", "x@y:z", "ä;&=", "a+b"])
def test_databases_of_a_home_lie_in_it(name: str, tmp_path: Path) -> None:
    from sqlalchemy.engine import make_url

    home = Home.open(tmp_path / name)
    assert make_url(home_uri(home)).database == str(tmp_path / name / "mlflow" / "mlflow.db")
    assert sqlite_file(home_uri(home)) == tmp_path / name / "mlflow" / "mlflow.db"
    assert sqlite_file(f"{home_uri(home)}?timeout=9") == tmp_path / name / "mlflow" / "mlflow.db"
    url = f"{home_uri(home)}#/experiments/1/runs/2"
    assert (
        how_to_open(url)
        == f"mlflow ui --backend-store-uri {home_uri(home)}, then http://127.0.0.1:5000/#/experiments/1/runs/2"
    )
    assert run_url_in("http://h", url) == "http://h/#/experiments/1/runs/2?workflowType=machine_learning"


def test_other_stores_have_no_file() -> None:
    assert sqlite_file("http://127.0.0.1:5000") is None
    assert sqlite_file("postgresql://u@h/x") is None


def test_a_file_takes_its_place_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    with ParquetOutput(path) as output:
        output.write(pa.table({"a": pa.array([1, 2], pa.int64())}))
        output.write(pa.table({"a": pa.array([3], pa.int8())}))  # the first table decides
        assert not path.exists()
    assert output.num_rows == 3
    assert pq.read_table(path) == pa.table({"a": pa.array([1, 2, 3], pa.int64())})
    assert pq.ParquetFile(path).num_row_groups == 1, "a group each would fill the footer of an explanation of many rows"
    assert list(tmp_path.iterdir()) == [path]


def test_an_error_leaves_the_former_file_and_no_draft(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(b"former")

    def write() -> None:
        with ParquetOutput(path) as output:
            output.write(pa.table({"a": [1]}))
            output.write(pa.table({"b": [2]}))

    with pytest.raises(ValueError, match="field names"):
        write()
    assert path.read_bytes() == b"former"
    assert list(tmp_path.iterdir()) == [path]


def test_without_a_row_there_is_no_file(tmp_path: Path) -> None:
    with ParquetOutput(tmp_path / "x.parquet"):
        pass
    assert not list(tmp_path.iterdir())


def test_a_link_in_the_place_of_the_draft_is_not_followed(tmp_path: Path) -> None:
    path, victim = tmp_path / "x.parquet", tmp_path / "victim"
    victim.write_bytes(b"theirs")
    beside(path, ".partial").symlink_to(victim)
    with ParquetOutput(path) as output:
        output.write(pa.table({"a": [1]}))
    assert victim.read_bytes() == b"theirs"
    assert not path.is_symlink()
    assert sorted(tmp_path.iterdir()) == [victim, path]
