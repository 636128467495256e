"""A deployment whose runs train over several machines: the worker's machine starts the others by ssh."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.flows.conftest import graphmill
from tests.machines.conftest import SECOND, Ssh
from tests.machines.test_ssh import processes_of
from tests.operations.conftest import bring_up
from tests.operations.test_deployments import start
from tests.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_scheduled_run_goes_on_after_a_machine_died(
    tmp_path: Path, ssh: Ssh, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", ssh.environment()["PATH"])  # the worker's runs find ssh there
    installation = bring_up(tmp_path, "--limit", "1")
    home = installation.home
    try:
        place = [f"train.hosts=127.0.0.1,{SECOND}", "train.ssh=true", f"train.rendezvous=127.0.0.1:{free_port()}"]
        settings = [*place, "train.epochs=1000", "train.checkpoint_every=10"]
        options = [word for text in settings for word in ("--set", text)]
        installation.run("deploy", str(installation.recipe), "--name", "together", *options)
        started = start(installation, "together", {}).json()["id"]
        run = f"flow_runs/{started}"
        installation.wait(lambda: _epochs(home) >= 30)
        (other,) = processes_of(home)
        other.kill()
        installation.wait(lambda: installation.api(run)["state_type"] == "COMPLETED")
        assert installation.api(run)["run_count"] == 2
        (manifest,) = home.glob("artifacts/train/*/manifest.json")
        result = json.loads(manifest.read_text())
        assert (result["world_size"], result["epochs_run"]) == (2, 1000)
        assert result["resumed_from_epoch"] > 0
        logs = installation.api("logs/filter", {"logs": {"flow_run_id": {"any_": [started]}}, "limit": 200})
        assert f"{SECOND}: machine 1 lends 1 rank(s)" in [log["message"] for log in logs]
        assert not processes_of(home)
    finally:
        graphmill(home, "down")


def _epochs(home: Path) -> int:
    return sum(len(path.read_text().splitlines()) for path in home.glob("work/train-*/metrics.jsonl"))
