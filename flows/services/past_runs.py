"""Flow runs that were over before Prefect heard of them: written into its history without its engine and its server.

A run that finds everything lasts a moment; importing Prefect and starting a server for it would take seconds. A server
that is up is told through its API. Without one the run goes into the home's SQLite file, where the next server shows
it, if the tables are of the revision that this module was written for. Whatever else there is takes the ordinary way.
"""

from __future__ import annotations

import base64
import contextlib
import datetime
import json
import os
import sqlite3
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from flows.services.environment import own_server_url
from flows.web.prefect_database import DATABASE_VARIABLES
from tasks.storage.home import Home

REVISION = "a3b9c7d2e5f1"
"""Of the tables of Prefect 3.8."""
_OTHER_WAYS = (
    "PREFECT_API_KEY",
    "PREFECT_API_SSL_CERT_FILE",
    "PREFECT_API_TLS_INSECURE_SKIP_VERIFY",
    "PREFECT_CLIENT_CUSTOM_HEADERS",
    *DATABASE_VARIABLES,
)
"""Settings that lead elsewhere, or ask for more than is done here."""
_WAIT_SECONDS, _RETRY_SECONDS = 10.0, 0.2
_EPOCH = datetime.datetime.fromtimestamp(0, datetime.UTC)  # durations are stored as times after it


@dataclass(frozen=True)
class PastRun:
    """A flow run that ended well, none of whose tasks had Prefect run it."""

    flow: str
    name: str
    parameters: dict[str, Any]
    tags: list[str]
    began: datetime.datetime
    tasks: dict[str, str]
    """Name to the state that it ended in: Cached or Completed."""
    message: str
    """Of its last state, in a line."""
    key: str
    """Of the artifact on the run's page."""
    text: str
    """What it says, in Markdown."""
    title: str
    """What it is, in a line."""


def can_write(home: Home) -> bool:
    """Whether Prefect's history can be written without Prefect: its server answers, or its tables are known."""
    if any(os.environ.get(name) for name in _OTHER_WAYS):
        return False
    url = own_server_url()
    try:
        if url:
            with urllib.request.urlopen(f"{url.rstrip('/')}/health", timeout=_WAIT_SECONDS):
                return True
        with _open(home) as database:
            return _is_known(database)
    except (OSError, ValueError, sqlite3.Error):
        return False


Holding = Callable[[str], contextlib.AbstractContextManager[object]]


def write_past_run(home: Home, run: PastRun, holding: Holding = contextlib.nullcontext) -> str | None:
    """Write a run into Prefect's history; returns its id, or None where only Prefect itself can do that.

    `holding`: what to hold while the run of an id is written, so that others see where the writer was killed.
    """
    if not can_write(home):
        return None
    url = own_server_url()
    try:
        return _send(url.rstrip("/"), run, holding) if url else _insert(home, run, holding)
    except (OSError, ValueError, KeyError, sqlite3.Error):
        return None  # the ordinary way says what is wrong, or mends it


# ---------------------------------------------------------------------- a server that is up


def _send(url: str, run: PastRun, holding: Holding) -> str:
    """Return the run's id. Raises OSError where the server does not answer, or refuses; the run is not there then."""
    headers = {"Content-Type": "application/json"}
    password = os.environ.get("PREFECT_API_AUTH_STRING")
    if password:
        headers["Authorization"] = f"Basic {base64.b64encode(password.encode()).decode()}"

    def post(path: str, content: dict[str, Any], method: str = "POST") -> Any:
        body = json.dumps(content).encode()
        request = urllib.request.Request(f"{url}/{path}", data=body, headers=headers, method=method)
        patience = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                with urllib.request.urlopen(request, timeout=_WAIT_SECONDS) as answer:
                    return json.loads(answer.read() or b"null")
            except urllib.error.HTTPError as error:
                # So the server says, having done nothing, that others had its SQLite file locked for too long.
                if error.code != HTTPStatus.SERVICE_UNAVAILABLE or time.monotonic() > patience:
                    raise
            time.sleep(_RETRY_SECONDS)

    flow = post("flows/", {"name": run.flow})["id"]
    given = {"name": run.name, "flow_id": flow, "parameters": run.parameters, "tags": run.tags}
    # It has ended from the beginning: one whose writer is killed in between would run for ever.
    identity = str(post("flow_runs/", {**given, "state": {"type": "COMPLETED", "message": run.message}})["id"])
    try:
        with holding(identity):
            _send_tasks(post, identity, run)
    except BaseException:
        with contextlib.suppress(OSError, ValueError):
            post(f"flow_runs/{identity}", {}, "DELETE")
        raise
    return identity


def _send_tasks(post: Callable[..., Any], identity: str, run: PastRun) -> None:
    for name, state in run.tasks.items():
        found = {"type": "COMPLETED", "name": state}
        key = {"name": name, "task_key": name, "dynamic_key": "0"}
        post("task_runs/", {**key, "flow_run_id": identity, "state": found})
    page = {"key": run.key, "type": "markdown", "data": run.text, "description": run.title}
    post("artifacts/", {**page, "flow_run_id": identity})


# ---------------------------------------------------------------------- the home's SQLite file


def _open(home: Home) -> contextlib.closing[sqlite3.Connection]:
    address = f"file:{quote(str(home.prefect / 'prefect.db'))}?mode=rw"
    return contextlib.closing(sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS))


def _is_known(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT version_num FROM alembic_version").fetchall() == [(REVISION,)]


def _insert(home: Home, run: PastRun, holding: Holding) -> str:
    """Return the run's id. Raises sqlite3.Error; all of it is there then, or nothing."""
    identity = str(uuid.uuid4())
    with holding(identity), _open(home) as database:
        database.execute("PRAGMA foreign_keys = ON")
        with database:
            _insert_rows(database, run, identity)
    return identity


def _insert_rows(database: sqlite3.Connection, run: PastRun, identity: str) -> None:
    state, now = str(uuid.uuid4()), datetime.datetime.now(datetime.UTC)

    def insert(table: str, values: dict[str, Any]) -> None:
        names = ", ".join(values)
        places = ", ".join("?" * len(values))
        database.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", list(values.values()))

    database.execute(
        "INSERT INTO flow (id, name, labels) VALUES (?, ?, '{}') ON CONFLICT (name) DO NOTHING",
        (str(uuid.uuid4()), run.flow),
    )
    flow = database.execute("SELECT id FROM flow WHERE name = ?", (run.flow,)).fetchone()[0]
    began, ended = _moment(run.began), _moment(now)
    expected = {"run_count": 1, "expected_start_time": began}
    completed = {"end_time": ended, "state_type": "COMPLETED", "state_timestamp": ended}
    took = {"start_time": began, "total_run_time": _moment(_EPOCH + (now - run.began))}
    took_no_time = {"start_time": ended, "total_run_time": _moment(_EPOCH)}
    of_run = {"flow_run_id": identity}
    given = {"name": run.name, "parameters": json.dumps(run.parameters), "tags": json.dumps(run.tags)}
    known_flow = {"flow_id": flow, "labels": json.dumps({"prefect.flow.id": flow})}
    insert(
        "flow_run",
        {"id": identity, **given, **known_flow, "state_name": "Completed", **expected, **took, **completed},
    )
    reached = {"type": "COMPLETED", "timestamp": ended}
    said = {"name": "Completed", "message": run.message, "state_details": json.dumps(of_run)}
    insert("flow_run_state", {"id": state, **of_run, **said, **reached})
    database.execute("UPDATE flow_run SET state_id = ? WHERE id = ?", (state, identity))
    for name, state_name in run.tasks.items():
        task, task_state = str(uuid.uuid4()), str(uuid.uuid4())
        key = {"name": name, "task_key": name, "dynamic_key": "0", "flow_run_run_count": 1, "labels": "{}"}
        states = {"state_id": task_state, "state_name": state_name}
        insert("task_run", {"id": task, **of_run, **key, **states, **expected, **took_no_time, **completed})
        insert("task_run_state", {"id": task_state, "task_run_id": task, "name": state_name, **reached})
    page = {"key": run.key, "type": "markdown", "data": json.dumps(run.text), "description": run.title, **of_run}
    latest = str(uuid.uuid4())
    insert("artifact", {"id": latest, **page})
    database.execute("DELETE FROM artifact_collection WHERE key = ?", (run.key,))
    insert("artifact_collection", {"id": str(uuid.uuid4()), "latest_id": latest, **page})


def _moment(time: datetime.datetime) -> str:
    """Return a time in UTC as Prefect stores it."""
    return time.astimezone(datetime.UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
