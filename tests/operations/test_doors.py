"""Servers on loopback as a foreign page, or a request that nobody should send, meets them: through a bare socket."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.operations.conftest import Installation
from tests.raw_requests import UPGRADE, Headers, ask

_NOBODY = 65534
pytestmark = pytest.mark.timeout(900)  # a loaded machine takes ten times as long
PATHS = {"prefect": "/api/admin/version", "mlflow": "/api/2.0/mlflow/experiments/get?experiment_id=0"}


def _server(installation: Installation, name: str) -> tuple[str, str]:
    url = {"prefect": installation.prefect, "mlflow": installation.mlflow}[name]
    return url, f"localhost:{url.rpartition(':')[2]}"


def _fill(headers: Headers, own: str) -> Headers:
    return [(name, value.replace("OWN", own).replace("PORT", own.rpartition(":")[2])) for name, value in headers]


@pytest.mark.parametrize("server", ["prefect", "mlflow"])
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ([("Host", "OWN")], 200),
        ([("Host", "OWN"), ("X-Forwarded-Host", "evil.example")], 200),  # nobody reads it
        ([], 400),
        ([("Host", "evil.example:PORT"), ("X-Forwarded-Host", "OWN")], 400),
        ([("Host", "OWN"), ("Host", "evil.example")], 400),
        ([("Host", "OWN"), ("Origin", "http://localhost:3000")], 403),
        ([("Host", "OWN"), ("Origin", "http://OWN"), ("Origin", "https://evil.example")], 403),
    ],
)
def test_only_own_names_and_own_pages(installation: Installation, server: str, headers: Headers, status: int) -> None:
    url, own = _server(installation, server)
    assert ask(url, PATHS[server], _fill(headers, own)) == status


@pytest.mark.parametrize(
    ("server", "given"),
    [
        *((server, given) for server in ("prefect", "mlflow") for given in ([], [("X-Forwarded-For", "127.0.0.1")])),
        ("prefect", UPGRADE),
    ],
)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_of_this_machine_stays_outside(installation: Installation, server: str, given: Headers) -> None:
    url, own = _server(installation, server)
    path = PATHS[server] if given != UPGRADE else "/api/events/in"
    assert ask(url, path, [("Host", own), *given]) != 403
    assert _ask_as(_NOBODY, url, path, [("Host", own), *given]) == 403
    assert _ask_as(0, url, path, [("Host", own), *given]) != 403


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_may_see_that_a_server_lives(installation: Installation) -> None:
    for server, path in {"prefect": "/api/health", "mlflow": "/health"}.items():
        url, own = _server(installation, server)
        assert _ask_as(_NOBODY, url, path, [("Host", own)]) == 200
        assert _ask_as(_NOBODY, url, path, [("Host", own)], method="POST") == 403


def _ask_as(user: int, url: str, target: str, headers: Headers, method: str = "GET") -> int:
    """Ask through a shell of another user, which may read nothing of ours."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    lines += [] if ("Connection", "Upgrade") in headers else ["Connection: close"]
    program = 'exec 3<>/dev/tcp/127.0.0.1/$1 && printf "%s\\r\\n" "${@:2}" "" >&3 && read -r line <&3 && echo "$line"'
    shell = ["/bin/bash", "-c", program, "bash", url.rpartition(":")[2], *lines]
    done = subprocess.run(
        shell, user=user, group=user, extra_groups=[], cwd="/", capture_output=True, text=True, timeout=60, check=True
    )
    return int(done.stdout.split()[1])


@pytest.mark.parametrize("server", ["prefect", "mlflow"])
@pytest.mark.parametrize("address", ["http://evil.example", "http://OWN"])
def test_an_address_is_no_path(installation: Installation, server: str, address: str) -> None:
    url, own = _server(installation, server)
    assert ask(url, address.replace("OWN", own) + PATHS[server], [("Host", own)]) == 400


@pytest.mark.parametrize("method", ["POST", "OPTIONS", "HEAD"])
def test_a_page_of_another_program_makes_no_experiment(installation: Installation, method: str) -> None:
    url, own = _server(installation, "mlflow")
    headers = [("Host", own), ("Origin", "http://localhost:3000")]
    body = json.dumps({"name": "foreign"}) if method == "POST" else ""
    assert ask(url, "/api/2.0/mlflow/experiments/create", headers, method, body) == 403
    found = "/api/2.0/mlflow/experiments/get-by-name?experiment_name=foreign"
    assert ask(url, found, [("Host", own)]) == 404


@pytest.mark.parametrize(
    ("headers", "opened"),
    [
        ([("Host", "OWN")], True),
        ([("Host", "OWN"), ("Origin", "http://OWN")], True),
        ([("Host", "OWN"), ("Origin", "http://localhost:3000")], False),
        ([("Host", "evil.example")], False),
    ],
)
def test_sockets_are_for_own_pages_too(installation: Installation, headers: Headers, opened: bool) -> None:
    url, own = _server(installation, "prefect")
    status = ask(url, "/api/events/in", [*_fill(headers, own), *UPGRADE, ("Sec-WebSocket-Protocol", "prefect")])
    assert (status == 101) == opened
