"""Runs that Prefect hears of when they are over: its server shows them as any other, however they were told."""

from __future__ import annotations

import base64
import dataclasses
import datetime
import json
import sqlite3
import urllib.request
from contextlib import closing
from typing import Any

import pytest

from flows.services.past_runs import PastRun, can_write, write_past_run
from flows.services.temporary_server import EmbeddedServer, prepare_database
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


def test_a_server_shows_them_however_they_were_told(prepared: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    # This file may have been read minutes ago.
    run_now = dataclasses.replace(RUN, began=datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=7))
    inserted = [write_past_run(prepared, run_now), write_past_run(prepared, run_now)]
    server = EmbeddedServer(prepared)
    server.launch()
    try:
        server.wait()
        monkeypatch.setenv("PREFECT_API_URL", server.url)
        monkeypatch.setenv("PREFECT_API_AUTH_STRING", server._password)
        told = write_past_run(prepared, run_now)
        runs = {run["id"]: run for run in asked(server, "flow_runs/filter", {})}
        assert set(runs) == {*inserted, told}
        assert len(asked(server, "flows/filter", {})) == 1
        for identity, run in runs.items():
            assert (run["name"], run["parameters"], run["tags"]) == (RUN.name, RUN.parameters, RUN.tags)
            assert (run["state"]["type"], run["state"]["name"]) == ("COMPLETED", "Completed")
            assert run["state"]["message"] == RUN.message
            assert run["run_count"] == 1
            assert 7 <= run["total_run_time"] < 60 or identity == told, "only the file can be told of the past"
            mine = {"flow_runs": {"id": {"any_": [identity]}}}
            tasks = asked(server, "task_runs/filter", mine)
            assert {task["name"]: task["state"]["name"] for task in tasks} == RUN.tasks
            assert {task["state"]["type"] for task in tasks} == {"COMPLETED"}
            (page,) = asked(server, "artifacts/filter", mine)
            assert (page["key"], page["type"], page["data"]) == ("stages", "markdown", RUN.text)
        assert asked(server, "artifacts/stages/latest")["flow_run_id"] == told
    finally:
        server.stop()


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
