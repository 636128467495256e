"""What a killed run, a cancelled run and a run that was never started come to, without anybody's doing."""

from __future__ import annotations

import datetime
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import requests

from flows import recovery
from flows.backfill.actions import MAX_STARTS
from flows.records.run_record import RunRecord, now_text, recorded
from tasks.storage.home import Home
from tests.operations.conftest import Installation
from tests.operations.test_deployments import deploy, deployment_id, start

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

LONG = {"overrides": ["train.epochs=100000", "train.checkpoint_every=50"]}


def processes_of(run_id: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("PREFECT__FLOW_RUN_ID") == run_id:
                found.append(process)
        except psutil.Error:
            continue
    return found


def trains(installation: Installation, run_id: str) -> bool:
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


@dataclass
class Abandoned:
    """A run in a pool that no worker serves, and a home of its own: nobody but the test looks after it."""

    installation: Installation
    home: Home
    id: str

    def put(self, state: str) -> None:
        url = f"{self.installation.prefect}/api/flow_runs/{self.id}/set_state"
        assert requests.post(url, json={"state": {"type": state}, "force": True}, timeout=30).ok

    def look(self) -> str:
        from prefect.client.orchestration import SyncPrefectClient

        with SyncPrefectClient(f"{self.installation.prefect}/api") as client:
            recovery.Recovery(client, self.home).look()
        return str(self.installation.api(f"flow_runs/{self.id}")["state_type"])

    def record(self, host: str) -> RunRecord:
        record = RunRecord(id=self.id, recipe="tiny", started_at=now_text(), host=host)
        self.home.runs.mkdir(parents=True, exist_ok=True)
        record.write(self.home)
        return record


@pytest.fixture
def abandoned(installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Abandoned:
    for name in ("_CANCELLING_SECONDS", "_PENDING_SECONDS", "_FIRST_PAUSE_SECONDS", "_GONE_SECONDS"):
        monkeypatch.setattr(recovery, name, 0.0)
    pools = f"{installation.prefect}/api/work_pools/"
    requests.post(pools, json={"name": "elsewhere", "type": "process"}, timeout=30)
    # No run of another test: this recovery's home knows none of them.
    monkeypatch.setattr(recovery, "RUN_TAG", f"only:{tmp_path.name}")
    installation.run("deploy", str(installation.recipe), "--name", "elsewhere", "--pool", "elsewhere")
    address = f"{installation.prefect}/api/deployments/{deployment_id(installation, 'elsewhere')}/create_flow_run"
    due = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=30)).isoformat()
    state = {"type": "SCHEDULED", "state_details": {"scheduled_time": due}}
    made = requests.post(address, json={"state": state, "tags": [f"only:{tmp_path.name}"]}, timeout=30).json()
    # A run that nobody started has no process: Prefect cancels it at once.
    url = f"{installation.prefect}/api/flow_runs/{made['id']}"
    assert requests.patch(url, json={"infrastructure_pid": "gone:1"}, timeout=30).ok
    return Abandoned(installation, Home.open(str(tmp_path)), made["id"])


def test_a_run_of_a_machine_that_is_gone_is_ended(abandoned: Abandoned, monkeypatch: pytest.MonkeyPatch) -> None:
    abandoned.record("gone")
    for state, then in (("CANCELLING", "CANCELLED"), ("RUNNING", "CRASHED")):
        abandoned.put(state)
        monkeypatch.setattr(recovery, "_GONE_SECONDS", 3600.0)
        assert abandoned.look() == state
        monkeypatch.setattr(recovery, "_GONE_SECONDS", 0.0)
        assert abandoned.look() == then


def test_a_run_that_crashes_before_it_runs_is_not_started_for_ever(abandoned: Abandoned) -> None:
    found = []
    for _ in range(MAX_STARTS + 1):
        abandoned.put("CRASHED")
        found.append(abandoned.look())
    assert found == ["SCHEDULED"] * (MAX_STARTS - 1) + ["CRASHED"] * 2, "it was due a month ago; that does not matter"


def test_a_run_that_was_taken_and_never_started_is_given_back(abandoned: Abandoned) -> None:
    abandoned.put("PENDING")
    assert abandoned.look() == "SCHEDULED"


def test_a_living_run_that_was_taken_for_dead_goes_on(abandoned: Abandoned) -> None:
    with recorded(abandoned.home, abandoned.record("")):
        abandoned.put("CRASHED")
        assert abandoned.look() == "RUNNING"


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
