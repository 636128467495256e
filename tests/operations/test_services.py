"""`graphmill up`, `status`, `down`, on real servers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
import requests

from configs.errors import RecipeError
from flows.services import supervisor
from flows.services.settings import ServiceSettings, check_database, log_path
from flows.services.state import ServiceState, born, is_same
from tasks.storage.home import Home
from tests.flows.conftest import command, environment, graphmill
from tests.operations.conftest import Installation

pytestmark = pytest.mark.timeout(900)  # a loaded machine takes ten times as long


def test_all_services_answer(installation: Installation) -> None:
    status = installation.json("status")
    assert status["healthy"]
    assert set(status["services"]) == {"prefect", "mlflow", "worker", "recovery"}
    assert requests.get(f"{installation.prefect}/api/health", timeout=10).json() is True
    assert requests.get(f"{installation.mlflow}/health", timeout=10).text == "OK"
    # Where a machine is loaded, the worker reports some seconds after it is up.
    workers = installation.wait(lambda: installation.api("work_pools/graphmill/workers/filter", {}))
    assert [worker["status"] for worker in workers] == ["ONLINE"]


def test_a_second_up_says_that_it_is_up(installation: Installation) -> None:
    before = installation.json("status")["services"]
    done = installation.run("up")
    assert "is up already" in done.stdout
    after = installation.json("status")["services"]
    assert {name: item["process"] for name, item in before.items()} == {
        name: item["process"] for name, item in after.items()
    }


def test_another_option_for_what_runs_is_refused(installation: Installation) -> None:
    done = installation.run("up", "--limit", "3", ok=False)
    assert done.returncode == 2
    assert "--limit" in done.stderr
    assert "graphmill down" in done.stderr


@pytest.mark.slow
def test_a_killed_service_comes_back(installation: Installation) -> None:
    before = installation.json("status")["services"]["mlflow"]
    os.kill(before["process"], signal.SIGKILL)

    def again() -> bool:
        status = installation.json("status", ok=None)
        service = status["services"]["mlflow"]
        return bool(status["healthy"] and service["process"] != before["process"])

    installation.wait(again)
    assert installation.json("status")["services"]["mlflow"]["restarts"] == before["restarts"] + 1


def test_what_reads_within_a_write_does_not_wait_for_itself(installation: Installation) -> None:
    """Pausing a queue writes it, then reads its pool in a session of its own, all in one request."""
    queues = f"{installation.prefect}/api/work_pools/graphmill/queues"
    queue = requests.post(queues, json={"name": "to be paused"}, timeout=30).json()
    address = f"{installation.prefect}/api/work_queues/{queue['id']}"
    for paused in (True, False):
        answer = requests.patch(address, json={"is_paused": paused}, timeout=30)
        assert answer.ok, answer.text
        assert requests.get(address, timeout=30).json()["is_paused"] is paused
    assert requests.delete(address, timeout=30).ok


@pytest.mark.slow
def test_runs_of_the_command_line_appear_on_the_lasting_server(installation: Installation) -> None:
    result = installation.json("run", str(installation.recipe), "seed=77")
    run = installation.api(f"flow_runs/{result['prefect_flow_run_id']}")
    assert run["state_type"] == "COMPLETED"
    found = requests.get(
        f"{installation.mlflow}/api/2.0/mlflow/runs/get", {"run_id": result["mlflow_run_id"]}, timeout=30
    )
    assert found.json()["run"]["info"]["status"] == "FINISHED"


def test_logs_are_shown(installation: Installation) -> None:
    assert "starting worker" in installation.run("logs", "worker", "-n", "2000").stdout
    done = installation.run("logs", "wroker", ok=False)
    assert "did you mean 'worker'" in done.stderr


@pytest.mark.parametrize("password", ["hush/12", "12/hush", "hush?x", "hu#sh", "hu@sh", "hush%", "hush%zz", "[hush"])
def test_a_password_that_is_not_encoded_is_told_and_not_shown(password: str) -> None:
    settings = ServiceSettings(database=f"postgresql+asyncpg://me:{password}@127.0.0.1:1/none")
    with pytest.raises(RecipeError) as refused:
        check_database(settings)
    assert "127.0.0.1:1/none" in str(refused.value)
    assert "percent-encode" in str(refused.value)
    assert not any(part in str(refused.value) for part in ("hush", "hu#", "hu@", "me:"))


def test_what_libpq_cannot_decode_is_not_shown() -> None:
    settings = ServiceSettings(database="postgresql://me:hush%00@127.0.0.1:1/none")
    with pytest.raises(RecipeError) as refused:
        check_database(settings)
    assert "127.0.0.1:1/none cannot be used" in str(refused.value)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--database", "mysql://x/y"], ["--database", "PostgreSQL"]),
        (["--database", "postgresql://me@127.0.0.1:1/none"], ["127.0.0.1:1/none", "cannot be used"]),
        (["--limit", "9"], ["SQLite", "--database"]),
        (["--host", "203.0.113.7"], ["203.0.113.7"]),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: list[str], words: list[str]) -> None:
    done = graphmill(tmp_path / "home", "up", *options)
    assert done.returncode == 2
    for word in words:
        assert word in done.stderr
    assert not (tmp_path / "home" / "services" / "state.json").exists()


def test_a_process_is_known_by_the_boot_and_its_tick() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        account = ServiceState(name="mlflow", process=process.pid, born=born(process.pid))
        assert is_same(account)
        assert not is_same(account.model_copy(update={"born": ""}))
        assert not is_same(account.model_copy(update={"process": os.getpid()}))
        _, _, ticks = account.born.partition(":")
        assert not is_same(account.model_copy(update={"born": f"another boot:{ticks}"}))
        process.kill()
    assert not is_same(account)


def test_a_log_that_is_being_written_is_rotated(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "_LOG_BYTES", 1000)
    path = log_path(home, "prefect")
    with path.open("ab", buffering=0) as log:
        log.write(b"short\n")
        supervisor.rotate_logs(home, ["prefect", "supervisor"])
        assert path.read_bytes() == b"short\n"
        log.write(b"x" * 2000)
        supervisor.rotate_logs(home, ["prefect", "supervisor"])
        log.write(b"new\n")
    assert path.read_bytes() == b"new\n"
    assert path.with_suffix(".log.1").read_bytes() == b"short\n" + b"x" * 2000


@pytest.mark.slow
def test_two_that_come_up_at_once_have_ports_of_their_own(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("one", "two")]
    started = [
        subprocess.Popen(command(home, "up"), env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for home in homes
    ]
    try:
        for process in started:
            text, _ = process.communicate()
            assert process.returncode == 0, text
        said = [json.loads(graphmill(home, "status", "--json").stdout) for home in homes]
        assert len({one[f"{service}_url"] for one in said for service in ("prefect", "mlflow")}) == 4
        assert all(service["restarts"] == 0 for one in said for service in one["services"].values())
    finally:
        for home in homes:
            graphmill(home, "down")


@pytest.mark.slow
def test_down_leaves_nothing_and_up_takes_over_from_a_killed_supervisor(tmp_path: Path) -> None:
    from tests.operations.conftest import bring_up

    found = bring_up(tmp_path)
    status = found.json("status")
    first = {name: item["process"] for name, item in status["services"].items()}
    supervisor = psutil.Process(first["worker"]).ppid()
    os.kill(supervisor, signal.SIGKILL)
    temporary = found.home / "services" / "tmp"
    (temporary / "prefect-workspace-attempt-of-a-killed-worker").mkdir()
    time.sleep(0.5)
    assert "nothing restarts these" in found.run("status", ok=False).stdout
    found.run("up")
    assert not list(temporary.glob("*killed*"))
    second = {name: item["process"] for name, item in found.json("status")["services"].items()}
    assert not set(first.values()) & set(second.values())
    assert not [process for process in first.values() if psutil.pid_exists(process)]
    assert found.json("status")["prefect_url"] == status["prefect_url"]  # a bookmark stays good
    assert "is down" in found.run("down").stdout
    assert not [process for process in second.values() if psutil.pid_exists(process)]
    assert not temporary.exists()
    assert "was not up" in found.run("down").stdout
