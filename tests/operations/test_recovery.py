"""What a killed run, a cancelled run and a run that was never started come to, without anybody's doing."""

from __future__ import annotations

import time
from pathlib import Path

import psutil
import pytest
import requests
from prefect.client.orchestration import SyncPrefectClient

from flows.runs import RunRecord, now_text
from flows.services import recovery
from tasks.home import Home
from tests.operations.conftest import Installation
from tests.operations.test_deployments import deploy, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LONG = {"overrides": ["train.epochs=100000", "train.checkpoint_every=50"]}


def processes_of(run_id: str) -> list[psutil.Process]:
    """The run's own process and everything below it."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PREFECT__FLOW_RUN_ID") == run_id:
                found.append(process)
        except psutil.Error:
            continue
    return found


def trains(installation: Installation, run_id: str) -> bool:
    """Whether the training of a run has written a checkpoint."""
    tasks = installation.api("task_runs/filter", {"flow_runs": {"id": {"any_": [run_id]}}})
    running = any(task["name"].startswith("train") and task["state_type"] == "RUNNING" for task in tasks)
    return running and any((installation.home / "work").glob("train-*/last.pt"))


def states_of(installation: Installation, run_id: str) -> list[str]:
    answer = requests.get(f"{installation.prefect}/api/flow_run_states/", {"flow_run_id": run_id}, timeout=30)
    return [state["type"] for state in answer.json()]


def test_a_killed_run_is_marked_within_two_minutes_and_goes_on(installation: Installation) -> None:
    deploy(installation, "killed")
    parameters = {"overrides": ["train.epochs=3000", "train.checkpoint_every=50", "seed=303"]}
    run_id = start(installation, "killed", parameters).json()["id"]
    installation.wait(lambda: trains(installation, run_id))
    (engine,) = (p for p in processes_of(run_id) if "prefect.engine" in " ".join(p.cmdline()))
    engine.kill()
    killed_at = time.monotonic()
    installation.wait(lambda: "CRASHED" in states_of(installation, run_id))
    assert time.monotonic() - killed_at < 120
    installation.wait(lambda: installation.api(f"flow_runs/{run_id}")["state_type"] == "COMPLETED")
    states = states_of(installation, run_id)
    assert states.count("COMPLETED") == 1
    assert installation.api(f"flow_runs/{run_id}")["run_count"] == 2
    result = installation.json("runs", "tiny", "--status", "completed")
    assert run_id in [run["id"] for run in result["runs"]]
    logs = installation.api("logs/filter", {"logs": {"flow_run_id": {"any_": [run_id]}}, "limit": 200})
    assert any("epoch" in log["message"] for log in logs)


def test_nothing_keeps_running_after_a_cancel(installation: Installation) -> None:
    deploy(installation, "cancelled")
    run_id = start(installation, "cancelled", LONG).json()["id"]
    installation.wait(lambda: trains(installation, run_id))
    assert len(processes_of(run_id)) >= 2  # the flow and its training
    url = f"{installation.prefect}/api/flow_runs/{run_id}/set_state"
    assert requests.post(url, json={"state": {"type": "CANCELLING"}}, timeout=30).ok
    installation.wait(lambda: installation.api(f"flow_runs/{run_id}")["state_type"] == "CANCELLED")
    installation.wait(lambda: not processes_of(run_id), 60)


def test_a_run_of_a_machine_that_is_gone_is_cancelled(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = f"{installation.prefect}/api/work_pools/"
    assert requests.post(pools, json={"name": "elsewhere", "type": "process"}, timeout=30).ok
    installation.run("deploy", str(installation.recipe), "--name", "elsewhere", "--pool", "elsewhere")
    run_id = start(installation, "elsewhere", {}).json()["id"]
    url = f"{installation.prefect}/api/flow_runs/{run_id}"
    assert requests.patch(url, json={"infrastructure_pid": "gone:1"}, timeout=30).ok  # one that nobody started has none
    for state in ("RUNNING", "CANCELLING"):
        assert requests.post(f"{url}/set_state", json={"state": {"type": state}, "force": True}, timeout=30).ok
    home = Home.open(str(tmp_path))
    home.runs.mkdir(parents=True, exist_ok=True)
    RunRecord(id=run_id, recipe="tiny", started_at=now_text(), host="gone").write(home)
    monkeypatch.setattr(recovery, "_CANCELLING_SECONDS", 0.0)
    for patience, state in ((3600.0, "CANCELLING"), (0.0, "CANCELLED")):
        monkeypatch.setattr(recovery, "_GONE_SECONDS", patience)
        with SyncPrefectClient(f"{installation.prefect}/api") as client:
            recovery.Recovery(client, home).look()
        assert installation.api(f"flow_runs/{run_id}")["state_type"] == state


def test_a_wrong_recipe_fails_in_one_line_and_is_not_tried_again(installation: Installation) -> None:
    deploy(installation, "bad-night")
    run_id = start(installation, "bad-night", {"overrides": ["train.device=cuda", "seed=304"]}).json()["id"]
    installation.wait(lambda: installation.api(f"flow_runs/{run_id}")["state_type"] == "FAILED")
    run = installation.api(f"flow_runs/{run_id}")
    assert "torch sees no GPU; take train.device=cpu" in run["state"]["message"]
    artifacts = installation.api("artifacts/filter", {"flow_runs": {"id": {"any_": [run_id]}}})
    (failure,) = (artifact["data"] for artifact in artifacts if artifact["key"] == "failure")
    assert failure.startswith("**train: train.device=cuda: torch sees no GPU")
    assert "must be mended" in failure
    time.sleep(15)  # longer than the recovery's look and its first pause
    assert installation.api(f"flow_runs/{run_id}")["run_count"] == 1
