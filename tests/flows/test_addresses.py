"""Servers that are starting, or have just gone down, when a command asks for them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from configs.errors import StageError
from flows.services import addresses
from flows.services.settings import ServiceSettings, write_settings
from flows.services.state import lock_path
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home
from tests.ports import free_port


class Well(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def url(home: Home) -> Iterator[str]:
    """The address of a home's Prefect server that does not listen yet, while its supervisor lives."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(("PREFECT_", "MLFLOW_", "GRAPHMILL_"))]:
            patch.delenv(name)
        kept = dict(os.environ)
        port = free_port()
        write_settings(home, ServiceSettings(prefect_port=port, mlflow_port=free_port()))
        with file_lock(lock_path(home)):
            addresses.connect(home)
        yield os.environ["PREFECT_API_URL"]
        for name in set(os.environ) - set(kept):
            del os.environ[name]


def test_a_server_that_is_starting_is_waited_for(home: Home, url: str) -> None:
    def start() -> None:
        time.sleep(1.0)
        with HTTPServer(("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0])), Well) as server:
            server.handle_request()

    starting = threading.Thread(target=start)
    with file_lock(lock_path(home)):
        starting.start()
        addresses.check_answers(url)
    starting.join()


def test_one_that_has_gone_down_is_named_as_graphmill_s_own(home: Home, url: str) -> None:
    lock = contextlib.ExitStack()
    lock.enter_context(file_lock(lock_path(home)))
    threading.Timer(0.5, lock.close).start()
    with pytest.raises(StageError, match=r"graphmill up's .* has just stopped; run again") as raised:
        addresses.check_answers(url)
    assert "PREFECT_API_URL" not in str(raised.value)


def test_one_that_never_starts_leads_to_its_log(home: Home, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "_START_SECONDS", 0.5)
    with file_lock(lock_path(home)), pytest.raises(StageError, match="graphmill status"):
        addresses.check_answers(url)


def test_the_user_s_own_server_is_not_waited_for(home: Home) -> None:
    with file_lock(lock_path(home)), pytest.raises(StageError, match="unset PREFECT_API_URL"):
        addresses.check_answers(f"http://127.0.0.1:{free_port()}/api")


@pytest.fixture
def _own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)


@pytest.mark.usefixtures("_own_store")
def test_a_store_of_runs_that_nobody_reaches_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:secret@127.0.0.1:{free_port()}")
    with pytest.raises(
        StageError, match=r"URI=127\.0\.0\.1:\d+ does not answer .* unset MLFLOW_TRACKING_URI"
    ) as raised:
        addresses.check_tracking_store()
    assert "secret" not in str(raised.value)


@pytest.mark.usefixtures("_own_store")
@pytest.mark.parametrize("store", ["", "sqlite:///x.db", "/tmp/runs"])
def test_stores_that_are_no_servers_pass(monkeypatch: pytest.MonkeyPatch, store: str) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    addresses.check_tracking_store()


@pytest.mark.usefixtures("_own_store")
def test_a_server_without_a_page_of_health_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(Well):
        def do_GET(self) -> None:
            self.send_error(404)

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        answering = threading.Thread(target=server.handle_request)
        answering.start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        addresses.check_tracking_store()
        answering.join()
