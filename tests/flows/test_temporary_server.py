"""The run's own server is killed: it comes back as it was, or the run hears why it does not."""

from __future__ import annotations

import os
import signal
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
from flows.web.temporary_server import EmbeddedServer
from tasks.processes import ending
from tasks.storage.home import Home


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


def ask(server: EmbeddedServer) -> int:
    import base64

    token = base64.b64encode(server._password.encode()).decode()
    request = urllib.request.Request(f"{server.url}/health", headers={"Authorization": f"Basic {token}"})
    with urllib.request.urlopen(request, timeout=30) as response:
        return int(response.read())


def kill(server: EmbeddedServer) -> None:
    assert server._process is not None
    os.kill(server._process.pid, signal.SIGKILL)


def wait_for_another(server: EmbeddedServer, before: int) -> None:
    while server._process is None or server._process.pid == before:
        time.sleep(0.01)


def test_a_killed_server_comes_back_with_its_address_and_password(small: EmbeddedServer) -> None:
    small.launch()
    small.wait()
    before, url = ask(small), small.url
    killed = psutil.Process(before)  # known before it dies: it may be gone at once
    killed.kill()
    killed.wait(timeout=30)
    after = ask(small)  # asked while there was none: it waits in the socket's queue
    assert (small.url, after != before) == (url, True)
    small.stop()
    time.sleep(0.2)
    assert not psutil.pid_exists(after), "a server that was stopped stays so"


def test_a_server_killed_in_its_own_start_starts_again(small: EmbeddedServer) -> None:
    (small.home.prefect / "mode").write_text("slow")
    small.launch()
    assert small._process is not None
    first = small._process.pid
    threading.Timer(0.3, kill, [small]).start()
    small.wait()
    assert ask(small) != first


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
        pid = ask(small)
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
        ask(small)


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
