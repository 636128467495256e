"""`kill -9` at any instant: nothing half-written is used, no process stays behind, the next run goes on."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from configs.schema import STAGES
from flows.records.run_record import all_runs
from tasks.calls import load_stage
from tasks.storage.artifacts import ArtifactStore, is_locked
from tasks.storage.home import Home
from tests.flows.conftest import command, environment, graphmill, write_recipe

GONE_SECONDS = 10.0


def processes_of(home: Path) -> list[psutil.Process]:
    """Processes that were started for this home, by the environment that they inherit."""
    found: list[psutil.Process] = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and str(home) in str(process.environ()):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]


def kill_at(home: Path, arguments: list[str], stage: str | None, delay: float) -> bool:
    """Run, wait until `stage` is built anew (None: from the start), then `delay` seconds, then kill the leader alone.

    Returns whether the run was killed (it may have finished before).
    """
    process = subprocess.Popen(
        command(home, *arguments),
        env={**environment(), "GRAPHMILL_TEST_HOME": str(home)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while stage and process.poll() is None and time.monotonic() < deadline and not _is_building(home, stage):
        time.sleep(0.005)
    time.sleep(delay)
    killed = process.poll() is None
    if killed:
        os.kill(process.pid, signal.SIGKILL)
    process.wait()
    deadline = time.monotonic() + GONE_SECONDS
    while (left := processes_of(home)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not left, [process.cmdline() for process in left]
    return killed


def _is_building(home: Path, stage: str) -> bool:
    """Whether a builder holds the stage's lock (a killed one leaves its folder, but never its lock)."""
    locks = (home / "locks").glob(f"{stage}-*.lock")
    return any(is_locked(lock) for lock in locks) and any((home / "work").glob(f"{stage}-*"))


def stages_done(home: Path, seed: int) -> int:
    own = [run for run in all_runs(Home(home)) if f"dataset.seed={seed}" in run.overrides]
    return max((len(run.stages) for run in own), default=0)


def check_artifacts(home: Path) -> None:
    store = ArtifactStore(Home(home))
    for folder in (home / "artifacts").glob("*/*"):
        assert store.load(folder.parent.name, folder.name, load_stage(folder.parent.name).manifest, deep=True)


def finish(home: Path, *arguments: str) -> dict[str, Any]:
    done = graphmill(home, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    outcome: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert outcome["status"] == "completed"
    assert [stage["name"] for stage in outcome["stages"]] == list(STAGES)
    return outcome


@pytest.mark.slow
def test_three_kills(tmp_path: Path) -> None:
    home, recipe = tmp_path / "home", write_recipe(tmp_path)
    arguments = ["run", str(recipe), "train.epochs=40"]
    for stage, delay in (("ingest", 0.05), ("train", 2.0), ("publish", 0.5)):
        assert kill_at(home, arguments, stage, delay), stage
        check_artifacts(home)
    outcome = finish(home, *arguments)
    states = {stage["name"]: stage["status"] for stage in outcome["stages"]}
    assert states["preprocess"] == states["train"] == "cached", "what was done before a kill is not done again"
    check_artifacts(home)
    records = all_runs(Home(home))
    assert [record.status for record in records] == ["completed"] + ["failed"] * 3
    with sqlite3.connect(home / "prefect" / "prefect.db") as prefect:
        known = dict(prefect.execute("select id, state_name from flow_run").fetchall())
    assert [known[record.id] for record in records] == ["Completed"] + ["Crashed"] * 3


@pytest.mark.slow
def test_a_use_of_a_model_that_was_killed_is_marked_as_crashed(tmp_path: Path) -> None:
    home, recipe = tmp_path / "home", write_recipe(tmp_path)
    finish(home, "run", str(recipe))
    arguments = ["predict", "-m", "tiny@1", str(recipe), "dataset.seed=2", "-o", str(tmp_path / "out.parquet")]
    assert kill_at(home, arguments, "ingest", 0.05)
    done = graphmill(home, *arguments)
    assert done.returncode == 0, done.stderr
    with sqlite3.connect(home / "prefect" / "prefect.db") as prefect:
        states = prefect.execute("select state_name from flow_run where name like 'predictions of %'").fetchall()
    assert sorted(states) == [("Completed",), ("Crashed",)]
    assert not list((home / "locks").glob("use-*"))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_many_kills(tmp_path: Path) -> None:
    """50 kills at random instants; whatever was finished in between ends with an undisturbed run's metrics."""
    home, recipe, rng = tmp_path / "home", write_recipe(tmp_path), random.Random(7)
    wanted = int(os.environ.get("GRAPHMILL_TEST_KILLS", "50"))
    kills, seed, outcomes = 0, 1, {}
    where: dict[str, int] = {}
    while kills < wanted:
        arguments = ["run", str(recipe), f"dataset.seed={seed}", "train.epochs=40"]
        while kills < wanted:
            # A stage that is done is found, not built: aim at the next ones, or anywhere from the start on.
            ahead = STAGES[stages_done(home, seed) :]
            stage = rng.choice([None, *ahead[:2]])
            delay = rng.uniform(0, 10) if stage is None else rng.uniform(0, 4 if stage == "train" else 0.6)
            if not kill_at(home, arguments, stage, delay):
                break
            kills += 1
            where[stage or "any"] = where.get(stage or "any", 0) + 1
            check_artifacts(home)
        outcomes[seed] = finish(home, *arguments)
        check_artifacts(home)
        seed += 1
    print(f"{kills} kills in {seed - 1} runs: {where}")
    for sample in (1, seed - 1):
        calm = finish(tmp_path / "calm", "run", str(recipe), f"dataset.seed={sample}", "train.epochs=40")
        assert outcomes[sample]["metrics"] == calm["metrics"]
