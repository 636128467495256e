"""A backfill under fire: worker, controller, Prefect server and runs are killed at random instants.

Long: run by hand, `pytest tests/operations/test_backfill_kills.py -m slow -s`.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.flows.conftest import command, environment, graphmill
from tests.operations.conftest import Installation, bring_up
from tests.operations.test_deployments import deploy

KILLS = 20
PARTITIONS = 12
VICTIMS = ("worker", "prefect", "controller", "run")


@pytest.fixture
def under_fire(tmp_path: Path) -> Iterator[Installation]:
    found = bring_up(tmp_path, "--limit", "2")
    yield found
    graphmill(found.home, "down")


class Controller:
    def __init__(self, installation: Installation) -> None:
        self._installation = installation
        self._process: subprocess.Popen[bytes] | None = None
        self.create()

    def create(self) -> None:
        arguments = ["backfill", "create", "fire", "--grid", f"seed=0..{PARTITIONS - 1}", "--id", "fire"]
        self._start(*arguments, "--max-active", "2")

    def _start(self, *arguments: str) -> None:
        log = (self._installation.home / "controller.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                command(self._installation.home, *arguments), env=environment(), stdout=log, stderr=log
            )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self.create()

    def finish(self) -> None:
        self._process.wait(timeout=300)


def kill(installation: Installation, controller: Controller, victim: str) -> bool:
    if victim == "controller":
        controller.kill()
        return True
    if victim == "run":
        runs = [p for p in psutil.process_iter(["cmdline"]) if _is_run(p, installation.home)]
        if not runs:
            return False
        random.choice(runs).kill()
        return True
    process = installation.json("status", ok=None)["services"][victim]["process"]
    if not process:
        return False
    os.kill(process, signal.SIGKILL)
    return True


def _is_run(process: psutil.Process, home: Path) -> bool:
    try:
        return "prefect.engine" in " ".join(process.cmdline()) and process.environ().get("GRAPHMILL_HOME") == str(home)
    except psutil.Error:
        return False


def states(installation: Installation, run_id: str) -> list[dict[str, Any]]:
    import requests

    answer = requests.get(f"{installation.prefect}/api/flow_run_states/", {"flow_run_id": run_id}, timeout=30)
    return answer.json()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_partition_has_one_result_whatever_is_killed(under_fire: Installation) -> None:
    installation = under_fire
    random.seed(7)
    deploy(installation, "fire", "--set", "train.epochs=40")
    controller = Controller(installation)
    killed: Counter[str] = Counter()
    for victim in itertools.cycle(VICTIMS):
        if killed.total() == KILLS:
            break
        time.sleep(random.uniform(2.0, 20.0))
        if kill(installation, controller, victim):
            killed[victim] += 1
            print(time.strftime("%H:%M:%S"), "killed", victim, flush=True)
    installation.wait(lambda: graphmill(installation.home, "status").returncode == 0, 300)
    controller.finish()
    controller.create()
    controller.finish()
    installation.wait(lambda: ended(installation), 1200)
    status = installation.json("backfill", "status", "fire", ok=None)
    print("kills", dict(killed), "attempts", [row["attempts"] for row in status["partitions"]], flush=True)
    assert status["counts"] == {"completed": PARTITIONS}
    runs = installation.flow_runs("backfill:fire")
    assert len(runs) == PARTITIONS
    for run in runs:
        types = [state["type"] for state in states(installation, run["id"])]
        assert types.count("COMPLETED") == 1, (run["name"], types)
    trained = list((installation.home / "artifacts" / "train").iterdir())
    assert len(trained) == PARTITIONS, "a training that was done was done again"
    # A run's process takes its time to end after its last state.
    installation.wait(lambda: not any(_is_run(p, installation.home) for p in psutil.process_iter(["cmdline"])), 60)


def ended(installation: Installation) -> bool:
    done = graphmill(installation.home, "backfill", "status", "fire", "--json")
    if done.returncode not in (0, 1) or not done.stdout:
        return False
    import json

    counts = json.loads(done.stdout.splitlines()[-1])["counts"]
    return sum(counts.get(state, 0) for state in ("completed", "cancelled", "failed")) == PARTITIONS
