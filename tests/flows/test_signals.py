"""A run that is told to end, in any stage and by any signal, ends closed: record, Prefect, MLflow, processes, files."""

from __future__ import annotations

import signal
import sqlite3
import time
from pathlib import Path

import pytest

from configs.schema import STAGES
from flows.records.run_record import all_runs
from tasks.storage.home import Home
from tests.flows.conftest import write_recipe
from tests.flows.test_crashes import Run, left_behind

EVERYWHERE = [(stage, number, 1) for stage in STAGES for number in (signal.SIGTERM, signal.SIGINT)]
EVERYWHERE += [("train", number, 2) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]


def check(tmp_path: Path, stage: str, number: signal.Signals, ranks: int) -> None:
    arguments = ["run", str(write_recipe(tmp_path)), f"train.num_ranks={ranks}", "train.device=cpu"]
    if stage == "train":
        arguments.append("train.epochs=100000")
    run = Run(tmp_path / "home", arguments, tmp_path / "temporary")
    before = {path.name for path in Path("/dev/shm").iterdir()}
    assert run.wait_for(stage)
    time.sleep(3.0 if stage == "train" else 0.0)
    run.process.send_signal(number)
    assert run.end() is None
    assert run.process.returncode == (130 if number == signal.SIGINT else 1)
    (record,) = all_runs(Home(run.home))
    assert record.status == "cancelled"
    with sqlite3.connect(run.home / "prefect" / "prefect.db") as prefect:
        assert prefect.execute("select state_name from flow_run").fetchall() == [("Crashed",)]
    database = run.home / "mlflow" / "mlflow.db"
    if database.exists():  # the live view of a training has opened it, or publication
        with sqlite3.connect(database) as mlflow:
            assert {state for (state,) in mlflow.execute("select status from runs")} <= {"KILLED"}
    assert [name for name in left_behind(run, before) if not name.startswith("train-")] == []


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("stage", "number", "ranks"), EVERYWHERE)
def test_a_signal_ends_a_run_in_each_stage(tmp_path: Path, stage: str, number: signal.Signals, ranks: int) -> None:
    check(tmp_path, stage, number, ranks)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_that_was_started_without_sigint_stays_so_and_ends_by_sigterm(tmp_path: Path) -> None:
    """As any `graphmill run ... &` of a script: its shell has had SIGINT ignored, as `nohup` has SIGHUP."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run = Run(
            tmp_path / "home", ["run", str(write_recipe(tmp_path)), "train.epochs=100000"], tmp_path / "temporary"
        )
    finally:
        signal.signal(signal.SIGINT, before)
    assert run.wait_for("train")
    run.process.send_signal(signal.SIGINT)
    time.sleep(3.0)
    assert run.process.poll() is None
    run.process.send_signal(signal.SIGTERM)
    assert run.end() is None
    assert run.process.returncode == 1
    (record,) = all_runs(Home(run.home))
    assert record.status == "cancelled"
