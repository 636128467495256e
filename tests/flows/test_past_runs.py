"""Runs that Prefect hears of when they are over: its server shows them as any other, however they were told."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from configs.errors import StageError
from flows.commands.recipes.run import call_flow
from flows.services.past_runs import PastRun, can_write, write_past_run
from flows.web.temporary_server import EmbeddedServer, prepare_database
from tasks.storage.home import Home

RUN = PastRun(
    flow="train_graph",
    name="tiny again",
    parameters={"recipe": "tiny", "overrides": ["seed=1"], "only": None},
    tags=["nightly"],
    began=datetime.datetime.now(datetime.UTC),
    tasks={"ingest": "Cached", "score": "Completed"},
    message="all of it was found",
    key="stages",
    text="| a | b |\n|---|---|\n| ä | 1 |",
    title="what came of it",
)


@pytest.fixture
def prepared(home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PREFECT_HOME", str(home.prefect))
    for name in ("PREFECT_API_URL", "PREFECT_API_AUTH_STRING"):
        monkeypatch.delenv(name, raising=False)
    prepare_database(home)
    return home


def asked(server: EmbeddedServer, path: str, content: dict[str, Any] | None = None) -> Any:
    headers = {
        "Content-Type": "application/json",
        "Authorization": f"Basic {base64.b64encode(server._password.encode()).decode()}",
    }
    body = None if content is None else json.dumps(content).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{server.url}/{path}", body, headers), timeout=60) as answer:
        return json.load(answer)


class Deadly(BaseHTTPRequestHandler):
    """Stands before a server: kills the writer when its request of a number comes, after the server has had it."""

    upstream = ""
    victim, number, requests = 0, 0, 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name: self.headers[name] for name in ("Content-Type", "Authorization")}
        with urllib.request.urlopen(urllib.request.Request(self.upstream + self.path, body, headers)) as answer:
            content = answer.read()
        type(self).requests += 1
        if self.requests == self.number:
            os.kill(self.victim, signal.SIGKILL)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


class Busy(BaseHTTPRequestHandler):
    """Stands before a server: every second request finds it busy, as when others have its SQLite file locked."""

    upstream = ""
    requests = 0

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        type(self).requests += 1
        if self.requests % 2:
            self._answer(503, b'{"exception_message":"Service Unavailable"}')
            return
        headers = {name: self.headers[name] for name in ("Content-Type", "Authorization")}
        with urllib.request.urlopen(urllib.request.Request(self.upstream + self.path, body, headers)) as answer:
            self._answer(answer.status, answer.read())

    def do_GET(self) -> None:
        with urllib.request.urlopen(self.upstream + self.path) as answer:
            self._answer(answer.status, answer.read())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def busy() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Busy) as proxy:
        thread = threading.Thread(target=proxy.serve_forever)
        thread.start()
        yield proxy
        proxy.shutdown()
        thread.join()


def test_a_server_shows_them_however_they_were_told(
    prepared: Home, busy: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This file may have been read minutes ago.
    run_now = dataclasses.replace(RUN, began=datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=7))
    inserted = [write_past_run(prepared, run_now), write_past_run(prepared, run_now)]
    server = EmbeddedServer(prepared)
    server.launch()
    try:
        server.wait()
        monkeypatch.setattr(Busy, "upstream", server.url.removesuffix("/api"))
        monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{busy.server_port}/api")
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", server._password)
        told = write_past_run(prepared, run_now)
        assert Busy.requests > 2
        runs = {run["id"]: run for run in asked(server, "flow_runs/filter", {})}
        assert set(runs) == {*inserted, told}
        assert len(asked(server, "flows/filter", {})) == 1
        for identity, run in runs.items():
            assert (run["name"], run["parameters"], run["tags"]) == (RUN.name, RUN.parameters, RUN.tags)
            assert (run["state"]["type"], run["state"]["name"]) == ("COMPLETED", "Completed")
            assert run["state"]["message"] == RUN.message
            if identity != told:  # only the file can be told of the past
                assert run["run_count"] == 1
                assert 7 <= run["total_run_time"] < 60
            assert run["start_time"] <= run["end_time"]
            mine = {"flow_runs": {"id": {"any_": [identity]}}}
            tasks = asked(server, "task_runs/filter", mine)
            assert {task["name"]: task["state"]["name"] for task in tasks} == RUN.tasks
            assert {task["state"]["type"] for task in tasks} == {"COMPLETED"}
            (page,) = asked(server, "artifacts/filter", mine)
            assert (page["key"], page["type"], page["data"]) == ("stages", "markdown", RUN.text)
        assert asked(server, "artifacts/stages/latest")["flow_run_id"] == told
    finally:
        server.stop()


def test_a_run_whose_writer_is_killed_has_ended(
    prepared: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests are: the flow, its run, two tasks, the page."""
    server = EmbeddedServer(prepared)
    server.launch()
    try:
        server.wait()
        with ThreadingHTTPServer(("127.0.0.1", 0), Deadly) as proxy:
            thread = threading.Thread(target=proxy.serve_forever)
            thread.start()
            monkeypatch.setattr(Deadly, "upstream", server.url.removesuffix("/api"))
            monkeypatch.setenv("PREFECT_API_URL", f"http://127.0.0.1:{proxy.server_port}/api")
            monkeypatch.setenv("PREFECT_API_AUTH_STRING", server._password)
            for number in (2, 3, 5):
                monkeypatch.setattr(Deadly, "requests", 0)
                monkeypatch.setattr(Deadly, "number", number)
                writer = subprocess.Popen([sys.executable, "-c", _WRITER, str(prepared.root), str(tmp_path)])
                monkeypatch.setattr(Deadly, "victim", writer.pid)
                assert writer.wait(timeout=60) == -signal.SIGKILL
            proxy.shutdown()
            thread.join()
        runs = {run["id"]: run["state"]["type"] for run in asked(server, "flow_runs/filter", {})}
        assert len(runs) == 3
        assert set(runs.values()) == {"COMPLETED"}
        held = {path.name for path in tmp_path.iterdir() if path.name in runs}
        assert len(held) == 2, "whoever is killed before the server's answer came does not know its run"
    finally:
        server.stop()


_WRITER = """
import contextlib, pathlib, sys
from configs.errors import StageError
from flows.commands.recipes.run import call_flow
from flows.services.past_runs import write_past_run
from tasks.storage.home import Home
from tests.flows.test_past_runs import RUN

@contextlib.contextmanager
def holding(identity):
    pathlib.Path(sys.argv[2], identity).touch()
    yield

write_past_run(Home.open(sys.argv[1]), RUN, holding)
"""


def test_other_tables_other_databases_and_none_are_left_to_prefect(
    prepared: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert can_write(prepared)
    monkeypatch.setenv("PREFECT_API_DATABASE_CONNECTION_URL", "postgresql+asyncpg://elsewhere/prefect")
    assert write_past_run(prepared, RUN) is None
    monkeypatch.delenv("PREFECT_API_DATABASE_CONNECTION_URL")
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:1/api")
    assert write_past_run(prepared, RUN) is None, "nobody answers"
    monkeypatch.delenv("PREFECT_API_URL")
    database = prepared.prefect / "prefect.db"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE alembic_version SET version_num = 'other'")
    assert write_past_run(prepared, RUN) is None
    database.unlink()
    assert write_past_run(prepared, RUN) is None
    assert not database.exists()


def test_a_run_s_own_server_that_fails_is_not_said_to_be_the_user_s(prepared: Home) -> None:
    server = EmbeddedServer(prepared)
    server.launch()

    def fail() -> None:
        raise httpx.ConnectError("is full")

    try:
        with pytest.raises(StageError, match=r"server of this run failed to answer: is full; its log is .*server\.log"):
            call_flow(server, fail, verbose=False)
    finally:
        server.stop()
