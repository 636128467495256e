"""One member of a run is killed, or all at once, anywhere after ingest: the end is an undisturbed run's, to the bit.

Members are the run's own process (the leader), its Prefect server, what starts the ranks, a rank, and the evaluation's
worker; `group` is the leader's process group, `tree` all processes of the run. After the death of a member that a run
can do without, the same run goes on; after another one's, the same command is given again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from configs.load import load_recipe
from configs.schema import STAGES
from flows.records.run_record import all_runs
from tasks.calls import call_stage, load_stage
from tasks.storage.artifacts import ArtifactStore, is_locked
from tasks.storage.home import Home
from tasks.train.job import LAST, METRICS
from tests.flows.conftest import command, environment, write_recipe
from tests.flows.test_kills import GONE_SECONDS, _is_building, check_artifacts, processes_of
from tests.warm_python import forked_processes

STAGES_KILLED = ("train", "evaluate", "publish")
MEMBERS = ("leader", "server", "starter", "rank", "worker", "group", "tree")
_WORDS = {
    "server": "flows.web.temporary_server",
    "starter": "tasks.train.ranks.one_machine",
    "rank": "tasks.train.worker",
    "worker": "tasks.evaluate.worker",
}


@dataclass
class Run:
    """`graphmill run` in a process group of its own; what it leaves in the temporary folder is seen."""

    home: Path
    arguments: list[str]
    temporary: Path
    process: subprocess.Popen[str] = field(init=False)
    outcome: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.temporary.mkdir(exist_ok=True)
        self.process = subprocess.Popen(
            command(self.home, *self.arguments, "--json"),
            env={**environment(), "GRAPHMILL_TEST_HOME": str(self.home), "TMPDIR": str(self.temporary)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait_for(self, stage: str) -> bool:
        """Wait until the stage is being built; False where the run ends before."""
        while self.process.poll() is None:
            if _is_building(self.home, stage):
                return True
            time.sleep(0.005)
        return False

    def kill(self, member: str, rng: random.Random) -> bool:
        if self.process.poll() is not None:
            return False
        if member == "group":
            os.killpg(self.process.pid, signal.SIGKILL)
            return True
        found = self._members(member)
        for process in found if member == "tree" else rng.sample(found, min(1, len(found))):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        return bool(found)

    def _members(self, member: str) -> list[psutil.Process]:
        below = processes_of(self.home)
        if member == "tree":
            return below
        if member == "leader":
            return [process for process in below if process.pid == self.process.pid]
        return [process for process in below if self._is(process, _WORDS[member])]

    @staticmethod
    def _is(process: psutil.Process, word: str) -> bool:
        """By the module that the interpreter was told to run; a starter's own words hold the ranks' too."""
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            return word in words[: words.index("-m") + 3] if "-m" in words else False
        return False

    def end(self) -> dict[str, Any] | None:
        """Wait for the end; nothing of the run may be about after it. Returns the outcome of one that ended well."""
        said, _ = self.process.communicate(timeout=600)
        deadline = time.monotonic() + GONE_SECONDS
        while (left := processes_of(self.home)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left, [process.cmdline() for process in left]
        assert not [lock for lock in (self.home / "locks").glob("*.lock") if is_locked(lock)]
        assert "please report it" not in said, said
        check_artifacts(self.home)
        return json.loads(said.splitlines()[-1]) if self.process.returncode == 0 else None


def left_behind(run: Run, shared_before: set[str]) -> list[str]:
    work = [path.name for path in (run.home / "work").iterdir()]
    mine = {path.name for path in Path("/dev/shm").iterdir() if path.stat().st_uid == os.getuid()} - shared_before
    return [*(path.name for path in run.temporary.iterdir()), *work, *sorted(mine & _of_torch(mine))]


def _of_torch(names: set[str]) -> set[str]:
    return {name for name in names if name.startswith(("torch_", "nccl-", "pymp-", "psm_", "sem.mp-"))}


def undisturbed(home: Path, arguments: list[str]) -> dict[str, str]:
    recipe = load_recipe(arguments[1], arguments[2:])
    keys: dict[str, str] = {}
    for stage in STAGES[:-1]:
        parents = {name: keys[name] for name in load_stage(stage).parents}
        keys[stage] = call_stage(stage, recipe, Home.open(home), parents).key
    return keys


def result(home: Path, keys: dict[str, str]) -> dict[str, Any]:
    """What must not differ by a bit: the weights, the predictions, the metrics."""
    store, files, metrics = ArtifactStore(Home(home)), {}, {}
    for name in ("train", "evaluate"):
        manifest = store.load(name, keys[name], load_stage(name).manifest, deep=True)
        # A journal tells seconds; so does the last checkpoint, beside the weights.
        files |= {file: entry.sha256 for file, entry in manifest.files.items() if file not in (METRICS, LAST)}
        if name == "train":
            files[LAST] = weights_digest(store.folder(name, keys[name]) / LAST)
        metrics[name] = getattr(manifest, "metrics", None) or manifest.best_metric
    return {"files": files, "metrics": metrics}


def weights_digest(checkpoint: Path) -> str:
    digest = hashlib.sha256()
    state = torch.load(checkpoint, weights_only=True)
    for name, tensor in sorted(state.get("model", {}).items()):  # tables lie in files of their own, gone by now
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


def disturb(run: Run, kills: list[tuple[str, str, float]], rng: random.Random, counts: Counter[str]) -> int:
    """Kill members at their stages, one after the other, as long as the run lives. Returns how many of `kills`."""
    for number, (stage, member, delay) in enumerate(kills):
        if not run.wait_for(stage):
            return number
        time.sleep(delay)
        while not (killed := run.kill(member, rng)) and _is_building(run.home, stage):
            time.sleep(0.05)  # it has yet to start
        if killed:
            counts[f"{stage}: {member}"] += 1
        if member in ("leader", "group", "tree"):
            run.process.wait(timeout=60)
            return number + 1
        time.sleep(0.3)
    return len(kills)


def crash(home: Path, arguments: list[str], kills: list[tuple[str, str, float]], counts: Counter[str]) -> Run:
    """Give the command again and again, with a kill at its time, until it ends well."""
    rng, done = random.Random(len(arguments)), 0
    for _ in range(len(kills) + 3):
        run = Run(home, arguments, home.parent / "temporary")
        done += disturb(run, kills[done:], rng, counts)
        outcome = run.end()
        if outcome is not None:
            run.outcome = outcome
            return run
    raise AssertionError("it never ended well")


def compare(home: Path, calm: Path, arguments: list[str], kills: list[tuple[str, str, float]]) -> Counter[str]:
    before = {path.name for path in Path("/dev/shm").iterdir()}
    counts: Counter[str] = Counter()
    run = crash(home, arguments, kills, counts)
    assert left_behind(run, before) == []
    keys = {stage["name"]: stage["key"] for stage in run.outcome["stages"]}
    assert result(home, keys) == result(calm, undisturbed(calm, arguments))
    return counts


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_members_are_killed_and_the_run_ends_as_if_nothing_had_happened(tmp_path: Path) -> None:
    arguments = [
        "run",
        str(write_recipe(tmp_path)),
        "train.epochs=300",
        "train.checkpoint_every=5",
        "train.num_ranks=2",
    ]
    kills = [("train", "server", 0.5), ("train", "rank", 1.0)]
    with forked_processes():
        counts = compare(tmp_path / "home", tmp_path / "calm", [*arguments, "train.device=cpu"], kills)
    assert sum(counts.values()) == 2


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
def test_sixty_kills(tmp_path: Path) -> None:
    """Stages, members and moments by the dice; one and two ranks in turn."""
    rng, wanted = random.Random(11), int(os.environ.get("GRAPHMILL_TEST_KILLS", "60"))
    counts: Counter[str] = Counter()
    recipe, seed = write_recipe(tmp_path), 0
    while sum(counts.values()) < wanted:
        seed += 1
        ranks = 1 + seed % 2
        arguments = ["run", str(recipe), f"seed={seed}", "train.epochs=40", "train.checkpoint_every=5"]
        arguments += ["train.device=cpu", f"train.num_ranks={ranks}", "train.max_restarts=5"]
        kills = []
        for stage in STAGES_KILLED:
            of_stage = [member for member in MEMBERS if _lives(member, stage, ranks)]
            longest = 8.0 if stage == "train" else 2.0
            kills += [(stage, rng.choice(of_stage), rng.uniform(0, longest)) for _ in range(3)]
        found = compare(tmp_path / "home", tmp_path / "calm", arguments, kills)
        counts += found
        print(f"seed {seed}, {ranks} rank(s): {sum(found.values())} kills, {sum(counts.values())} in all", flush=True)
    print(f"{sum(counts.values())} kills in {seed} trainings: {dict(sorted(counts.items()))}")


SHOP = [
    *("dataset.num_customers=1500", "dataset.num_products=100", "dataset.reviews_a_quarter=1000"),
    *("train.epochs=12", "train.checkpoint_every=5", "train.loader.batch_size=256"),
]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ranks", [1, 2])
def test_killed_trainings_of_databases_go_on_as_if_nothing_had_happened(tmp_path: Path, ranks: int) -> None:
    """Rows as of moments: weights, predictions and metrics are an undisturbed run's, to the bit."""
    arguments = ["run", "shop", *SHOP, f"train.num_ranks={ranks}", "train.device=cpu", "train.max_restarts=5"]
    kills = [("train", "rank", 2.0), ("train", "leader", 3.0), ("evaluate", "worker", 0.5)]
    counts = compare(tmp_path / "home", tmp_path / "calm", arguments, kills)
    assert sum(counts.values()) == len(kills), counts


TABLES = {
    "deepwalk": (
        ["dataset.num_nodes=3000", "dataset.num_edges=20000", "model.dim=32", "train.samples=2e7"],
        ["train.strategy.memory=300000", "train.strategy.pool=1e6"],
    ),
    "knowledge-graph": (
        ["dataset.num_entities=1500", "dataset.num_triples=20000", "model.dim=32", "train.epochs=60"],
        ["train.strategy.memory=120000"],
    ),
}
"""Changes that make a recipe of rows small, and those that leave its rows no room in memory."""


@pytest.mark.slow
@pytest.mark.timeout(2 * 3600)
@pytest.mark.parametrize("recipe", TABLES)
def test_twenty_kills_of_trainings_of_tables(tmp_path: Path, recipe: str) -> None:
    """Rows are the same to the bit: blocks in memory and in files, one and two ranks."""
    rng, counts, seed = random.Random(5), Counter[str](), 0
    small, beyond_memory = TABLES[recipe]
    often = ["train.checkpoint_minutes=0.01", "train.max_restarts=5", "train.device=cpu", "train.threads=1"]
    while sum(counts.values()) < int(os.environ.get("GRAPHMILL_TEST_KILLS", "20")):
        seed += 1
        ranks, memory = 1 + seed % 2, beyond_memory * (seed % 3 == 0)
        arguments = ["run", recipe, f"seed={seed}", f"train.num_ranks={ranks}", "train.strategy.blocks=4", *memory]
        members = [member for member in MEMBERS if _lives(member, "train", ranks)]
        kills = [("train", rng.choice(members), rng.uniform(0, 8)) for _ in range(3)]
        counts += compare(tmp_path / "home", tmp_path / "calm", [*arguments, *small, *often], kills)
    print(f"{sum(counts.values())} kills in {seed} trainings: {dict(sorted(counts.items()))}")


def _lives(member: str, stage: str, ranks: int) -> bool:
    if member == "starter":
        return stage == "train" and ranks > 1
    return {"rank": "train", "worker": "evaluate"}.get(member, stage) == stage


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
