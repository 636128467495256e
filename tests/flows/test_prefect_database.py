"""The server of a run: what becomes of a database that does not open, and whom it answers."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from configs.errors import StageError
from flows.web.prefect_database import PrefectDatabase
from flows.web.temporary_server import EmbeddedServer, prepare_database
from tasks.storage.home import Home
from tests.raw_requests import ask, basic

WRECK = b"this is no database" * 1000


def wrecked(folder: Path, patch: pytest.MonkeyPatch) -> Home:
    patch.setenv("GRAPHMILL_TEMPLATES", str(folder / "none"))
    patch.setenv("PREFECT_HOME", str(folder / "prefect"))
    (folder / "prefect").mkdir()
    (folder / "prefect" / "prefect.db").write_bytes(WRECK)
    return Home.open(str(folder))


@pytest.fixture(scope="module")
def mended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A home whose database was a wreck and is whole now."""
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
