from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.flows.conftest import command, environment, graphmill, write_recipe
from tests.warm_python import forked_processes

_SECONDS = 900  # a loaded machine takes ten times as long
FAST = {"train": {"loader": "full", "epochs": 2, "threads": 1}}


@dataclass(frozen=True)
class Installation:
    """Services that run, and how to talk to them. `ok` is how a command must end; None: either way."""

    home: Path
    recipe: Path
    prefect: str
    mlflow: str

    def run(self, *arguments: str, ok: bool | None = True, **options: Any) -> subprocess.CompletedProcess[str]:
        with forked_processes():
            done = subprocess.run(
                command(self.home, *arguments),
                capture_output=True,
                text=True,
                env=environment(),
                timeout=None if "watch" in arguments else _SECONDS,  # the test has its own
                **options,
            )
        assert ok is None or (done.returncode == 0) == ok, done.stdout + done.stderr
        return done

    def json(self, *arguments: str, ok: bool | None = True) -> Any:
        return json.loads(self.run(*arguments, "--json", ok=ok).stdout.splitlines()[-1])

    def api(self, path: str, body: dict[str, Any] | None = None) -> Any:
        url = f"{self.prefect}/api/{path}"
        answer = requests.get(url, timeout=30) if body is None else requests.post(url, json=body, timeout=30)
        assert answer.ok, answer.text
        return answer.json()

    def flow_runs(self, *tags: str) -> list[dict[str, Any]]:
        return self.api("flow_runs/filter", {"flow_runs": {"tags": {"all_": list(tags)}}, "limit": 200})

    def wait(self, what: Callable[[], Any], seconds: float = _SECONDS) -> Any:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            found = what()
            if found:
                return found
            time.sleep(0.5)
        logs = "\n".join(
            f"--- {path.name}\n" + "\n".join(path.read_text().splitlines()[-15:])
            for path in (self.home / "services" / "logs").glob("*.log")
        )
        raise AssertionError(f"not within {seconds} s\n{logs}")


def bring_up(folder: Path, *options: str) -> Installation:
    home = folder / "home"
    done = graphmill(home, "up", *options)
    if done.returncode != 0:
        graphmill(home, "down")
    assert done.returncode == 0, done.stdout + done.stderr
    status = json.loads(graphmill(home, "status", "--json").stdout.splitlines()[-1])
    return Installation(home, write_recipe(folder, **FAST), status["prefect_url"], status["mlflow_url"])


@pytest.fixture(scope="session")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """Prefect, MLflow and a worker as `graphmill up` leaves them, shared by all tests that do not kill them."""
    folder = tmp_path_factory.mktemp("installation")
    found = bring_up(folder, "--limit", "2")
    yield found
    graphmill(found.home, "down")
