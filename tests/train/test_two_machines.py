"""Two machines with homes of their own, whose supervisors are threads of this process; their ranks are real."""

from __future__ import annotations

import threading
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from configs.errors import IntegrityError, RecipeError
from tasks.stage import StageContext
from tasks.storage.home import Home
from tasks.storage.home_files.caching import PickleCache
from tasks.train.ranks.launch import run_training
from tasks.train.stage import compared_facts
from tests.ports import free_port
from tests.sampling.part_graphs import rich_graph
from tests.train.in_process import make_job
from tests.train.test_training import recipe


class Machine:
    """One of the two; its outcome is a result or an error."""

    def __init__(self, folder: Path, number: int, port: int, *options: str) -> None:
        self.home = Home.open(folder / f"home-{number}")
        self.graph = rich_graph(folder / f"graph-{number}")
        self.outcome: Any = None
        place = (
            "train.num_machines=2",
            f"train.machine_rank={number}",
            f"train.rendezvous=127.0.0.1:{port}",
            "train.shared_home=false",
        )
        common = ("train.loader=neighbor", "train.strategy=partitioned", "train.epochs=2")
        self._recipe = recipe("node", *common, *place, *options)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        work = self.home.work / "train-here"
        context = StageContext("train", work, self.home, PickleCache(self.home))
        try:
            job = make_job(self._recipe, self.graph, work)
            job = replace(job, facts=compared_facts(self._recipe, job, self.graph.manifest.digest))
            self.outcome = run_training(job, context)
        except Exception as error:
            self.outcome = error

    def end(self) -> Any:
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self.outcome


def ends(machines: list[Machine]) -> list[Any]:
    for machine in machines:
        machine.start()
    return [machine.end() for machine in machines]


def test_what_only_a_rank_of_another_machine_sees_is_told_on_machine_0(tmp_path: Path) -> None:
    port = free_port()
    machines = [Machine(tmp_path, number, port) for number in (0, 1)]
    damaged = machines[1].graph.folder / "feat.npy"
    damaged.write_bytes(damaged.read_bytes()[:-700])
    began = time.monotonic()
    first, second = ends(machines)
    assert isinstance(first, IntegrityError), first
    assert "feat.npy" in str(first)
    assert str(first) == str(second)
    assert time.monotonic() - began < 60  # once, and without waiting for each other


def test_another_recipe_is_told_on_both_machines(tmp_path: Path) -> None:
    port = free_port()
    machines = [Machine(tmp_path, 0, port), Machine(tmp_path, 1, port, "train.learning_rate=0.5")]
    began = time.monotonic()
    for outcome in ends(machines):
        assert isinstance(outcome, RecipeError), outcome
        assert "train.learning_rate is 0.01 on machine 0 and 0.5 on machine 1" in str(outcome)
    assert time.monotonic() - began < 60


def test_options_by_which_ranks_talk_are_told(tmp_path: Path) -> None:
    """They are no part of what is trained, and ranks that group batches otherwise would wait for each other."""
    port = free_port()
    option = "train.strategy.exchange_batches=3"
    for outcome in ends([Machine(tmp_path, 0, port), Machine(tmp_path, 1, port, option, "train.strategy.cache=0")]):
        assert isinstance(outcome, RecipeError), outcome
        assert "train.strategy.exchange_batches is 16 on machine 0 and 3 on machine 1. Give" in str(outcome)


def test_a_training_that_was_finished_when_its_run_was_killed_is_not_trained_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, free_port())  # machine 0 has its artifact, and comes to this training no more
    work = machine.home.work / "train-here"
    work.mkdir(parents=True)
    (work / "result.json").write_text('{"epochs_run": 2}')
    zipfile.ZipFile(work / "best.pt", "w").close()
    machine.start()
    assert machine.end() == {"epochs_run": 2, "restarts": 0}


@pytest.mark.slow
def test_both_train_the_same(tmp_path: Path) -> None:
    port = free_port()
    first, second = ends([Machine(tmp_path, number, port) for number in (0, 1)])
    assert first["epochs_run"] == second["epochs_run"] == 2
    assert first["best_metric"] == second["best_metric"]
