"""The run's own server and its database: it comes back as it was, or the run hears why it does not."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from configs.errors import StageError
from flows.web import temporary_server
from flows.web.prefect_database import PrefectDatabase
from flows.web.temporary_server import EmbeddedServer, prepare_database
from tasks.processes import ending
from tasks.storage.home import Home
from tests.raw_requests import ask, basic


@pytest.fixture
def small(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedServer]:
    monkeypatch.setattr(
        temporary_server, "_COMMAND", [sys.executable, str(Path(__file__).with_name("small_server.py"))]
    )
    monkeypatch.setenv("PREFECT_HOME", str(home.root / "another"))
    home.prefect.mkdir()
    (home.prefect / "mode").write_text("")
    server = EmbeddedServer(home)
    server.database.mark_as_made()
    yield server
    server.stop()


def answering(server: EmbeddedServer) -> int:
    """Return the process that answers; the password is part of the question."""
    import base64

    token = base64.b64encode(server._password.encode()).decode()
    request = urllib.request.Request(f"{server.url}/health", headers={"Authorization": f"Basic {token}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return int(response.read())


def kill(server: EmbeddedServer) -> None:
    os.kill(server._process.pid, signal.SIGKILL)


def wait_for_another(server: EmbeddedServer, before: int) -> None:
    while server._process is None or server._process.pid == before:
        time.sleep(0.01)


def test_a_killed_server_comes_back_with_its_address_and_password(small: EmbeddedServer) -> None:
    small.launch()
    small.wait()
    before, url = answering(small), small.url
    killed = psutil.Process(before)  # known before it dies: it may be gone at once
    killed.kill()
    killed.wait(timeout=30)
    after = answering(small)  # asked while there was none: it waits in the socket's queue
    assert (small.url, after != before) == (url, True)
    small.stop()
    time.sleep(0.2)
    assert not psutil.pid_exists(after), "a server that was stopped stays so"


def test_a_server_killed_in_its_own_start_starts_again(small: EmbeddedServer) -> None:
    (small.home.prefect / "mode").write_text("slow")
    small.launch()
    first = small._process.pid
    threading.Timer(0.3, kill, [small]).start()
    small.wait()
    assert answering(small) != first


def test_a_server_that_ends_by_itself_is_not_started_for_ever(small: EmbeddedServer) -> None:
    (small.home.prefect / "mode").write_text("broken")
    small.launch()
    with pytest.raises(StageError, match=r"did not start; its log is .*\n(.*\n)*the small server is broken"):
        small.wait()
    assert len(small._deaths) == 1


def test_a_server_that_is_killed_again_and_again_ends_the_run(
    small: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: list[Exception] = []
    monkeypatch.setattr(ending, "give_up", reasons.append)
    small.launch()
    small.wait()
    for number in range(temporary_server._MAX_DEATHS):
        pid = answering(small)
        os.kill(pid, signal.SIGKILL)
        if number < temporary_server._MAX_DEATHS - 1:
            wait_for_another(small, pid)
    assert small._stopped.wait(30)
    while not reasons:
        time.sleep(0.01)
    assert isinstance(reasons[0], StageError)
    assert "ended 5 times (signal SIGKILL" in str(reasons[0])
    assert "run again, what is done is found" in str(reasons[0])
    with pytest.raises(OSError, match="refused"):
        answering(small)


@pytest.mark.parametrize(("status", "away"), [(None, True), (503, True), (404, False)])
def test_a_lasting_server_that_went_away_is_named(
    status: int | None, away: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    import httpx

    from flows.commands.recipes.run import call_flow

    monkeypatch.setenv("PREFECT_API_URL", "http://user:secret@127.0.0.1:9/api")
    request = httpx.Request("GET", "http://127.0.0.1:9/api")
    error: httpx.HTTPError = httpx.ConnectError("All connection attempts failed", request=request)
    if status is not None:
        error = httpx.HTTPStatusError("no", request=request, response=httpx.Response(status))

    def call() -> None:
        raise error

    with pytest.raises(StageError if away else httpx.HTTPStatusError) as caught:
        call_flow(None, call, verbose=False)
    if away:
        assert "the Prefect server at 127.0.0.1:9/api went away" in str(caught.value)
        assert "run again: what is done is found" in str(caught.value)


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
