"""Every socket of `graphmill up` and of what its worker runs, with a proxy in the environment that answers nobody."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.flows.conftest import command, environment, write_recipe
from tests.flows.listening import watching
from tests.operations.conftest import FAST

pytestmark = pytest.mark.timeout(900)  # a loaded machine takes ten times as long

EXPECTED = {
    "prefect": "a worker that has started a run, which knows a token that is good once: Prefect's channel to end it",
    "flows.cli": "the socket of Prefect's own server by which `up` makes a new home's database: it asks for a password",
    "flows.web.temporary_server": "that server",
    "flows.web.prefect_server": "Prefect's API and pages",
    "mlflow": "MLflow's API and pages: its server holds the socket for ...",
    "uvicorn": "... the process that answers",
    "multiprocessing": "the same, as uvicorn starts it",
}


def test_what_up_and_its_runs_listen_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "example.org")
    home, recipe = tmp_path / "home", write_recipe(tmp_path, **FAST)

    def graphmill(*arguments: str) -> str:
        done = subprocess.run(
            command(home, *arguments), env=environment(), capture_output=True, text=True, timeout=600, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    with watching(home) as watch:
        try:
            graphmill("up")
            graphmill("deploy", str(recipe), "--name", "night")
            graphmill("start", "night", "--watch")
            status = json.loads(graphmill("status", "--json").splitlines()[-1])
            assert {service["healthy"] for service in status["services"].values()} == {True}
        finally:
            subprocess.run(command(home, "down"), env=environment(), capture_output=True, timeout=300, check=False)
    assert {"flows.web.prefect_server", "prefect"} <= {one.program for one in watch.seen}  # it sees what it looks for
    assert not [one for one in watch.seen if one.program not in EXPECTED or not one.on_loopback]
