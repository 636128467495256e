"""A training over two machines: two commands on one home, as a cluster would start them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from configs.errors import RecipeError, StageError
from configs.load import load_recipe
from tasks.storage.home import Home
from tasks.train.ranks import join
from tasks.train.ranks.join import join_training
from tasks.train.ranks.launch import FIRST_SECONDS, wait_for_ranks, waiting_after
from tasks.train.ranks.meeting import UNREACHED_CODE
from tasks.train.ranks.presence import FirstMachine, Post
from tests.flows.conftest import command, environment, write_recipe
from tests.ports import free_port

UP_TO_TRAIN = "ingest,preprocess,components,partition,train"
TRAIN = {"loader": "full", "epochs": 3, "threads": 1, "device": "cpu"}


class Machines:
    """Two machines that share a home and find each other on a port."""

    def __init__(self, folder: Path, **train: Any) -> None:
        self.home = folder / "home"
        self.homes = [self.home, self.home]
        self.processes: list[subprocess.Popen[str]] = []
        self._recipe = write_recipe(folder, train={**TRAIN, **train})
        self.options = ["train.num_machines=2", f"train.rendezvous=127.0.0.1:{free_port()}"]

    def start(self, rank: int, *options: str) -> subprocess.Popen[str]:
        arguments = ["run", str(self._recipe), *self.options, f"train.machine_rank={rank}"]
        only = () if "--only" in options else ("--only", UP_TO_TRAIN)
        process = subprocess.Popen(
            command(self.homes[rank], *arguments, *only, *options),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.processes.append(process)
        return process

    def join(self) -> Path:
        """Join as machine 1 without a process of its own."""
        recipe = load_recipe(str(self._recipe), [*self.options, "train.machine_rank=1"])
        return join_training(recipe, Home.open(self.home))

    def wait_for_epoch(self, epoch: int) -> None:
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            for path in self.home.glob("work/train-*/metrics.jsonl"):
                if len(path.read_text().splitlines()) >= epoch:
                    return
            time.sleep(0.05)
        raise AssertionError("no training")

    def result(self) -> dict[str, Any]:
        (manifest,) = self.home.glob("artifacts/train/*/manifest.json")
        content: dict[str, Any] = json.loads(manifest.read_text())
        return content


@pytest.fixture
def make_machines(tmp_path: Path) -> Iterator[Callable[..., Machines]]:
    made: list[Machines] = []

    def make(**train: Any) -> Machines:
        made.append(Machines(tmp_path, **train))
        return made[-1]

    yield make
    for machines in made:
        for process in machines.processes:
            if process.poll() is None:
                _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    """Turn a machine off: nothing of it is told that it ends."""
    tree = [process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))]
    for pid in tree:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.communicate()


def _finish(process: subprocess.Popen[str]) -> tuple[str, str]:
    text = process.communicate(timeout=280)
    assert process.returncode == 0, text[0] + text[1]
    return text


@pytest.mark.slow
def test_two_machines_train_together(make_machines: Callable[..., Machines]) -> None:
    machines = make_machines()
    # The one that comes first waits for the other, whichever it is.
    second = machines.start(1)
    first = machines.start(0, "--json")
    outcome = json.loads(_finish(first)[0].splitlines()[-1])
    assert outcome["status"] == "completed"
    said, explained = _finish(second)
    assert outcome["artifacts"]["train"] in said
    assert "machine 1 lends 1 rank(s)" in explained
    assert machines.result()["world_size"] == 2
    assert str(machines.join()) == outcome["artifacts"]["train"]  # what is there already is found


@pytest.mark.slow
def test_two_machines_with_homes_of_their_own(make_machines: Callable[..., Machines], tmp_path: Path) -> None:
    machines = make_machines(shared_home=False)
    machines.homes[1] = tmp_path / "other"
    processes = [machines.start(rank, "--json") for rank in (0, 1)]
    first, second = (json.loads(_finish(process)[0].splitlines()[-1]) for process in processes)
    assert first["artifacts"]["train"] != second["artifacts"]["train"]
    weights = [Path(outcome["artifacts"]["train"], "best.pt").read_bytes() for outcome in (first, second)]
    assert weights[0] == weights[1]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_machine_that_dies_and_comes_back_goes_on_from_the_checkpoint(
    make_machines: Callable[..., Machines], rank: int
) -> None:
    machines = make_machines(epochs=400, checkpoint_every=1)
    processes = [machines.start(0), machines.start(1)]
    machines.wait_for_epoch(5)
    _end(processes[rank])
    time.sleep(1)
    processes[rank] = machines.start(rank)
    for process in processes:
        _finish(process)
    result = machines.result()
    assert result["world_size"] == 2
    assert result["epochs_run"] == 400
    assert result["resumed_from_epoch"] > 0


PARTS = {"strategy": "partitioned", "loader": {"name": "neighbor", "fanout": [4, 4], "batch_size": 64}}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("embeddings", ["dense", "sparse"])
def test_as_many_ranks_go_on_on_fewer_machines(
    make_machines: Callable[..., Machines], tmp_path: Path, embeddings: str
) -> None:
    train = {**PARTS, "epochs": 60, "embeddings": embeddings}
    machines = make_machines(**train)
    together = "--only", f"{UP_TO_TRAIN},evaluate", f"dataset.feature_dim={0 if embeddings == 'sparse' else 8}"
    processes = [machines.start(rank, *together) for rank in (0, 1)]
    machines.wait_for_epoch(5)
    for process in processes:
        _end(process)
    (work,) = machines.home.glob("work/train-*")

    def alone(home: Path) -> dict[str, Any]:
        machines.homes[0], machines.options = home, ["train.num_ranks=2"]
        outcome: dict[str, Any] = json.loads(_finish(machines.start(0, *together, "--json"))[0].splitlines()[-1])
        return outcome

    found = alone(machines.home)
    assert found["artifacts"]["train"].endswith(work.name.removeprefix("train-"))
    assert machines.result()["resumed_from_epoch"] > 0
    assert found["metrics"] == alone(tmp_path / "undisturbed")["metrics"]


@pytest.mark.slow
def test_a_metric_that_does_not_fit_is_told_on_all_machines(make_machines: Callable[..., Machines]) -> None:
    machines = make_machines(**PARTS)
    together = "--only", f"{UP_TO_TRAIN},evaluate"
    processes = [machines.start(rank, *together, "evaluate.evaluator=hits") for rank in (0, 1)]
    for process in processes:
        _, said = process.communicate(timeout=280)
        assert process.returncode == 2, said
        (error,) = [line for line in said.splitlines() if line.startswith("error:")]
        assert "hits" in error


@pytest.mark.slow
def test_a_machine_with_other_options_is_told_so_and_so_is_machine_0(make_machines: Callable[..., Machines]) -> None:
    machines = make_machines(epochs=400)
    processes = [machines.start(0), machines.start(1, "train.learning_rate=0.02")]
    for process in processes:
        _, said = process.communicate(timeout=280)
        assert process.returncode == 2, said
        (error,) = [line for line in said.splitlines() if line.startswith("error:")]
        assert "train.learning_rate is 0.003 on machine 0 and 0.02 on machine 1" in error


def test_machine_0_does_not_join(tmp_path: Path) -> None:
    recipe = load_recipe(str(write_recipe(tmp_path, train=TRAIN)))
    with pytest.raises(RecipeError, match="machine 0 runs the pipeline"):
        join_training(recipe, Home.open(tmp_path / "home"))


def test_who_waits_where_no_machine_0_is_says_what_it_misses(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(join, "_UNSEEN_SECONDS", 0.1)
    monkeypatch.setattr(join, "_NEVER_SEEN_SECONDS", 0.5)
    place = ["train.num_machines=2", "train.rendezvous=node1:29400", "train.machine_rank=1", "train.threads=1"]
    recipe = load_recipe(str(write_recipe(tmp_path, train=TRAIN)), place)
    said: list[str] = []
    missing = f"no command of machine 0 is seen in the home {home.root} for node1:29400"
    with pytest.raises(StageError, match=f"gave up after .*{missing}"):
        join_training(recipe, home, message=said.append)
    assert said[0] == "waiting for machine 0 to prepare the graph"
    assert said[1].startswith(missing)
    monkeypatch.setattr(join, "_NEVER_SEEN_SECONDS", 1.0)
    monkeypatch.setattr(join, "_MESSAGE_SECONDS", 0.0)
    with Post(home, recipe).holding(0):  # it is there, and takes its time
        hears = patient(1.5)
        with pytest.raises(TimeoutError):
            join_training(recipe, home, message=hears)


def patient(seconds: float) -> Callable[[str], None]:
    """What hears of a wait, until so many seconds are over."""
    until = time.monotonic() + seconds

    def hear(text: str) -> None:
        assert text == "waiting for machine 0 to prepare the graph"
        if time.monotonic() > until:
            raise TimeoutError

    return hear


def made(home: Home, folder: Path) -> Any:
    place = ["train.num_machines=2", "train.rendezvous=node1:29400", "train.machine_rank=1", "train.threads=1"]
    recipe = load_recipe(str(write_recipe(folder, train=TRAIN)), place)
    return join._Training(recipe, home, False, lambda _: None, FirstMachine(None))


def test_a_machine_that_cannot_reach_machine_0_says_so(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = made(home, tmp_path)
    (tmp_path / "job.json").write_text("{}")
    monkeypatch.setattr(helper, "run_ranks", lambda path: UNREACHED_CODE)
    with pytest.raises(StageError, match="machine 1 cannot reach it at node1:29400"):
        helper._lend(tmp_path / "job.json")
    helper._first.alive = False  # it was killed, and may come back
    helper._lend(tmp_path / "job.json")


def test_ranks_end_when_machine_0_is_gone(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    helper = made(home, tmp_path)
    looks: list[int] = []

    def check(keys: object) -> None:
        looks.append(1)
        if len(looks) == 2:
            raise StageError("machine 0 is gone")

    monkeypatch.setattr(helper._first, "check", check)
    ranks = subprocess.Popen(["sleep", "60"], start_new_session=True)
    with pytest.raises(StageError, match="machine 0 is gone"):
        wait_for_ranks(ranks, helper.look)
    assert ranks.returncode == -signal.SIGTERM


def test_machines_that_were_together_a_moment_ago_do_not_wait_long(tmp_path: Path) -> None:
    last = tmp_path / "last.pt"
    last.touch()
    assert 22 <= waiting_after(last) <= 32
    os.utime(last, (time.time() - 20,) * 2)
    assert 62 <= waiting_after(last) <= 72
    os.utime(last, (time.time() - 3600,) * 2)
    assert waiting_after(last) == FIRST_SECONDS


def test_stages_that_are_done_again_are_waited_for(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[tuple[str, bool]] = []
    for kind in (join._Training, join._Evaluation):
        monkeypatch.setattr(kind, "run", lambda self: waits.append((self.stage, self._began > 0)))
    place = ["train.num_machines=2", "train.rendezvous=node1:29400", "train.machine_rank=1", "train.threads=1"]
    recipe = load_recipe(str(write_recipe(tmp_path, train={**TRAIN, **PARTS})), place)
    for force in ((), ("train",), ("evaluate",)):
        join_training(recipe, home, force=force)
        assert waits == [(stage, stage in force) for stage in ("train", "evaluate")]
        waits.clear()


def test_clocks_of_machines_may_differ(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, now = made(home, tmp_path)._recipe, time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600)
    helper = join._Training(recipe, home, True, lambda _: None, FirstMachine(None))
    folder = helper._store.folder("train", "key")
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("{}")
    assert helper._finished("key") == folder
    os.utime(folder / "manifest.json", (now() - 60,) * 2)  # that of before
    assert helper._finished("key") is None
