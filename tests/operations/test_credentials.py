"""Both servers beyond loopback: nothing without credentials, from foreign pages or under foreign names."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.flows.conftest import graphmill
from tests.operations.conftest import Installation, bring_up
from tests.raw_requests import UPGRADE, ask, basic

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a loaded machine takes ten times as long


@pytest.fixture(scope="module")
def exposed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, str]]:
    found = bring_up(tmp_path_factory.mktemp("exposed"), "--host", "0.0.0.0", "--public-name", "graphs.example")
    yield found, json.loads((found.home / "services" / "settings.json").read_text())["password"]
    graphmill(found.home, "down")


def test_the_password_is_kept_for_the_owner_and_shown_once(exposed: tuple[Installation, str]) -> None:
    installation, password = exposed
    assert stat.S_IMODE((installation.home / "services" / "settings.json").stat().st_mode) == 0o600
    assert stat.S_IMODE((installation.home / "services" / "mlflow-auth.ini").stat().st_mode) == 0o600
    assert password not in installation.run("up").stdout
    assert password not in installation.run("status", "--json").stdout


@pytest.mark.parametrize("path", ["flow_runs/count", "deployments/filter", "work_pools/filter", "variables/filter"])
def test_prefect_wants_credentials(exposed: tuple[Installation, str], path: str) -> None:
    installation, password = exposed
    url, right = f"{installation.prefect}/api/{path}", ("graphmill", password)
    query = {"client": "a-test"}
    assert requests.get(f"{installation.prefect}/api/csrf-token", query, timeout=30).status_code == 401
    token = requests.get(f"{installation.prefect}/api/csrf-token", query, auth=right, timeout=30).json()["token"]
    headers = {"Prefect-Csrf-Token": token, "Prefect-Csrf-Client": "a-test"}
    for auth, given, status in (
        (None, headers, 401),
        (("graphmill", "wrong"), headers, 401),
        (right, {}, 403),  # what a foreign form would send: the browser adds the password, the token is missing
        (right, headers, 200),
    ):
        assert requests.post(url, json={}, auth=auth, headers=given, timeout=30).status_code == status


@pytest.mark.parametrize("path", ["experiments/search", "runs/search", "registered-models/search"])
def test_mlflow_wants_credentials(exposed: tuple[Installation, str], path: str) -> None:
    installation, password = exposed
    url = f"{installation.mlflow}/api/2.0/mlflow/{path}"
    call = requests.get if path.startswith("registered") else requests.post
    body = {} if path.startswith("registered") else {"json": {"max_results": 1, "experiment_ids": ["0"]}}
    assert call(url, timeout=30, **body).status_code == 401  # type: ignore[arg-type]
    assert call(url, auth=("graphmill", "wrong"), timeout=30, **body).status_code == 401  # type: ignore[arg-type]
    assert call(url, auth=("graphmill", password), timeout=30, **body).status_code == 200  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("server", "path"),
    [("mlflow", "api/2.0/mlflow/experiments/get?experiment_id=0"), ("prefect", "api/admin/version")],
)
def test_foreign_pages_and_foreign_names_are_refused(exposed: tuple[Installation, str], server: str, path: str) -> None:
    installation, password = exposed
    address = getattr(installation, server)
    public = f"graphs.example:{address.rpartition(':')[2]}"
    for headers, status in (
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": f"http://{public}"}, 200),
        ({"Host": "evil.example"}, 400),
        ({"Host": public}, 200),
    ):
        answer = requests.get(f"{address}/{path}", auth=("graphmill", password), headers=headers, timeout=30)
        assert answer.status_code == status, headers
        if server == "prefect" and "Origin" in headers and status == 200:
            assert answer.headers["access-control-allow-origin"] == headers["Origin"]


CLOSED = {
    "prefect": ["/", "/docs", "/redoc", "/openapi.json", "/ui-settings", "/api/ready", "/api/version", "/api//health"],
    "mlflow": [
        *("/", "/version", "/api/3.0/mlflow/server-info", "/ajax-api/3.0/mlflow/server-info", "/favicon.ico"),
        *("/static-files/index.html", "/healthx", "/health/../version", "/signup"),
    ],
}
OPEN = {"prefect": "/api/health", "mlflow": "/health"}


@pytest.mark.parametrize("server", ["prefect", "mlflow"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST"])
def test_strangers_see_nothing(exposed: tuple[Installation, str], server: str, method: str) -> None:
    url = getattr(exposed[0], server)
    host = ("Host", f"localhost:{url.rpartition(':')[2]}")
    assert [ask(url, path, [host], method) for path in CLOSED[server]] == [401] * len(CLOSED[server])
    assert [ask(url, "/", [host, basic("graphmill", word)], method) for word in ("", "wrong")] == [401, 401]
    assert ask(url, OPEN[server], [host]) == 200, "probes need no credentials"
    assert ask(url, OPEN[server], [("Host", "evil.example")]) == 400
    known = [host, basic("graphmill", exposed[1])]
    assert ask(url, CLOSED[server][2], known) == 200
    assert ask(url, CLOSED[server][2], [*known, known[-1]]) == 401, "two passwords are none"


@pytest.mark.parametrize("path", ["events/in", "events/out", "logs/out", "task_runs/subscriptions/scheduled"])
def test_sockets_ask_for_the_password(exposed: tuple[Installation, str], path: str) -> None:
    """Prefect asks in the first message: not all of its clients, and no browser for certain, can send a header."""
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.client import connect
    from websockets.typing import Subprotocol

    url = exposed[0].prefect
    port = url.rpartition(":")[2]
    assert ask(url, f"/api/{path}", [("Host", f"localhost:{port}"), *UPGRADE]) == 403
    with connect(f"ws://localhost:{port}/api/{path}", subprotocols=[Subprotocol("prefect")], proxy=None) as socket:
        socket.send(json.dumps({"type": "auth", "token": "graphmill:wrong"}))
        with pytest.raises(ConnectionClosed, match="1008"):
            socket.recv(timeout=60)


def test_a_run_goes_through_with_credentials(exposed: tuple[Installation, str], tmp_path: Path) -> None:
    installation, _ = exposed
    installation.run("deploy", str(installation.recipe), "--name", "guarded")
    installation.run("backfill", "create", "guarded", "--grid", "seed=0", "--id", "guarded")
    installation.run("backfill", "watch", "guarded")
    assert installation.json("backfill", "status", "guarded")["counts"] == {"completed": 1}
