"""Databases of servers: templates, and Prefect's of a run."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from configs.errors import StageError, UserError
from configs.registry import DATASETS
from flows.cli import app
from flows.web.prefect_database import PrefectDatabase
from flows.web.temporary_server import EmbeddedServer, prepare_database
from tasks.ingest.synthetic.shop import write_shop
from tasks.storage.home import Home
from tests.flows.conftest import graphmill
from tests.raw_requests import ask, basic

SMALL = {
    "name": "synthetic_shop",
    "num_customers": 1500,
    "num_products": 100,
    "reviews_a_quarter": 1000,
    "num_quarters": 7,
}


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop") / "tables"
    write_shop(DATASETS.config(SMALL), folder)
    return folder


def invoke(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["--home", "home", *arguments])


def test_inspect_prints_a_recipe_that_check_takes(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = invoke("inspect", str(shop))
    assert shown.exit_code == 0, shown.output
    Path("shop.yaml").write_text(shown.stdout)
    told = invoke("check", "shop.yaml", "--json")
    assert told.exit_code == 0, told.output
    found = json.loads(told.stdout.splitlines()[-1])
    assert found["mistakes"] == []
    assert found["nodes"]["customers"] == 1500
    assert found["edges"]["orders__items__products"] > 1500
    files = sorted(str(path) for path in shop.glob("*.parquet"))
    assert yaml.safe_load(invoke("inspect", *files).stdout)["dataset"]["tables"].keys() == {
        *("customers", "items", "orders", "products", "reviews")
    }


def test_inspect_tells_tables_from_runs(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop").mkdir()
    for arguments, message in (
        ([str(shop), "--verify"], "--verify is for runs and artifacts; of tables a recipe is printed"),
        (["shop"], "no run 'shop'"),  # a folder without tables that is called like a recipe
        (["./shop"], "there is no table"),
        ([str(shop / "orders.parquet"), "train"], "no run"),
        (["none.csv"], "none.csv: there is no such file"),
        (["a", "train", "c"], "give one name and one stage at most, not a train c"),
    ):
        shown = invoke("inspect", *arguments)
        assert isinstance(shown.exception, UserError), arguments
        assert message in str(shown.exception)


def test_check_names_what_is_wrong_with_tables(shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = yaml.safe_load(invoke("inspect", str(shop)).stdout)
    recipe["dataset"]["tables"]["orders"]["key"] = "customer_id"
    del recipe["dataset"]["tables"]["orders"]["foreign"]
    Path("shop.yaml").write_text(yaml.safe_dump(recipe))
    told = invoke("check", "shop.yaml")
    assert isinstance(told.exception, UserError)
    assert "predict.target: orders has no foreign key to customers" in str(told.exception)


@pytest.mark.slow
def test_a_folder_of_tables_becomes_a_model(shop: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    proposed = graphmill(home, "inspect", str(shop))
    (tmp_path / "shop.yaml").write_text(proposed.stdout)
    options = ["train.epochs=1", "model.hidden_dim=16", "tracking.system_metrics=false"]
    done = graphmill(home, "run", str(tmp_path / "shop.yaml"), *options, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout.splitlines()[-1])
    assert record["status"] == "completed"
    assert 0.4 < record["metrics"]["test"]["rocauc"] <= 1


WRECK = b"this is no database" * 1000


def wrecked(folder: Path, patch: pytest.MonkeyPatch) -> Home:
    patch.setenv("GRAPHMILL_TEMPLATES", str(folder / "none"))
    patch.setenv("PREFECT_HOME", str(folder / "prefect"))
    (folder / "prefect").mkdir()
    (folder / "prefect" / "prefect.db").write_bytes(WRECK)
    return Home.open(str(folder))


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with pytest.MonkeyPatch.context() as patch:
        home = wrecked(tmp_path_factory.mktemp("mended"), patch)
        prepare_database(home)
        yield home


def test_what_a_killed_first_start_left_is_set_aside(mended: Home) -> None:
    assert PrefectDatabase(mended).is_made
    assert (mended.prefect / "prefect.db.broken").read_bytes() == WRECK
    with sqlite3.connect(mended.prefect / "prefect.db") as connection:
        assert connection.execute("select count(*) from flow_run").fetchone() == (0,)
    connection.close()


def test_a_run_s_server_answers_nobody_else(mended: Home) -> None:
    server = EmbeddedServer(mended)
    server.launch()
    try:
        server.wait()
        url = server.url.removesuffix("/api")
        own = ("Host", url.rpartition("/")[2])
        port = own[1].rpartition(":")[2]
        known = basic(*server._password.split(":"))
        strange = {
            path: ask(url, path, [own]) for path in ("/", "/docs", "/openapi.json", "/ui-settings", "/api/ready")
        }
        assert strange == dict.fromkeys(strange, 401)
        assert ask(url, "/api/health", [own]) == 200
        assert ask(url, "/api/admin/version", [own, known]) == 200
        for foreign in ("evil.example", f"localhost:{port}", f"127.0.0.1:{port}@evil.example"):
            assert ask(url, "/api/admin/version", [("Host", foreign), known]) == 400
        assert ask(url, "/api/admin/version", [own, known, ("Origin", url)]) == 403, "it has no pages"
    finally:
        server.stop()


@pytest.mark.parametrize("left", [None, b"", "no tables"])
def test_a_database_that_is_gone_is_made_anew(home: Home, left: bytes | str | None) -> None:
    """Somebody removed it, and what asked for it since has left an empty one."""
    database = PrefectDatabase(home)
    home.prefect.mkdir()
    database.mark_as_made()
    if left == "no tables":
        with contextlib.closing(sqlite3.connect(database.path)) as connection:
            connection.execute("pragma journal_mode = wal")
    elif isinstance(left, bytes):
        database.path.write_bytes(left)
    database.check()
    assert not database.is_made, "the next start makes the tables"


def test_a_damaged_database_is_named(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.prefect.mkdir()
    database = home.prefect / "prefect.db"
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("create table alembic_version as select zeroblob(100000)")
    PrefectDatabase(home).mark_as_made()
    PrefectDatabase(home).check()
    assert PrefectDatabase(home).is_made
    database.write_bytes(database.read_bytes()[:50_000])
    with pytest.raises(StageError, match=r"prefect\.db: database disk image is malformed; .* or move it away"):
        EmbeddedServer(home).start()
    assert PrefectDatabase(home).is_made, "it stays as it is"
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "postgresql+asyncpg://elsewhere")
    PrefectDatabase(home).check()


def test_the_database_of_an_older_version_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = wrecked(tmp_path, monkeypatch)
    (home.prefect / ".database-3.0.0").touch()
    with pytest.raises(StageError, match="did not start; its log is"):
        prepare_database(home)
    assert (home.prefect / "prefect.db").read_bytes() == WRECK
    assert not PrefectDatabase(home).is_made
