"""Tables trained on a device: the samples of the CPU's trainings, and rows near those that these come to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tasks.arrays import Array
from tasks.stage import Parent
from tasks.train.families import family_of
from tasks.train.job import RESULT, Job
from tasks.train.loaders import pairs
from tasks.train.run import run
from tasks.train.strategies.base import Ranks
from tasks.train.tables import grid
from tasks.train.tables.block_engine import PairEngine
from tasks.train.tables.device import RankDevice
from tasks.train.tables.grid import Key
from tests.support import node_graph, written
from tests.train.device_trainings import MEMORY, VARIABLE, shrink, small_recipe, train_on
from tests.train.in_process import make_job, own_settings, stopped_at
from tests.train.test_grid_ranks import vectors
from tests.train.two_processes import run_ranks
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES
Rows = dict[Key, Array]


@pytest.fixture(autouse=True)
def _small_trainings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With one thread, so that the CPU's are exact."""
    shrink(monkeypatch)
    with own_settings():
        yield


@pytest.fixture
def graph(tmp_path: Path) -> Parent:
    return written(node_graph(tmp_path / "graph"))


def train(asked: Any, graph: Parent, work: Path, memory: int | None) -> PairEngine:
    """Train to the end on the device, with so much memory there, or on the CPU."""
    place = RankDevice(torch.device("cpu")) if memory is None else RankDevice(DEVICE, memory)
    engine = PairEngine(make_job(asked, graph, work), Ranks(), place)
    run(engine)
    return engine


def rows(engine: PairEngine) -> Rows:
    """All blocks' rows."""
    grid, found = engine.grid, {}
    for block in range(grid.tables.num_blocks):
        for key in grid.keys(block, block):
            grid.load([key])
            found[key] = grid.block(key).read()
    return found


def losses(engine: PairEngine) -> list[float]:
    lines = [json.loads(line) for line in (engine.job.work / "metrics.jsonl").read_text().splitlines()]
    return [line["train/loss"] for line in lines if "train/loss" in line]


def distance(one: Rows, other: Rows) -> float:
    """Root of the sum of squares of all differences."""
    return float(np.sqrt(sum(np.square(one[key] - other[key]).sum() for key in one)))


def first_rows(engine: PairEngine) -> Rows:
    grid = engine.grid
    return {key: grid.first(key).read() for b in range(grid.tables.num_blocks) for key in grid.keys(b, b)}


def assert_near(ours: PairEngine, theirs: PairEngine) -> None:
    """Two trainings end close to each other, by how far they came."""
    begin, found, expected = first_rows(ours), rows(ours), rows(theirs)
    assert distance(found, expected) < 0.05 * distance(begin, expected)
    assert losses(ours) == pytest.approx(losses(theirs), rel=0.01)
    assert ours.progress.run_totals[-3] == theirs.progress.run_totals[-3]


@pytest.mark.parametrize(
    ("model", "options", "memory"),
    [
        ({"order": "both"}, {}, MEMORY),
        ({"shared_negatives": 4, "negative_weight": 2.0}, {"loader": "edges", "learning_rate": 0.1}, MEMORY),
        ({"negatives": 1}, {"learning_rate": 0.1, "precision": "bfloat16"}, MEMORY),
        ({}, {"strategy": {"blocks": 2, "pool": 50}, "loader": "edges"}, MEMORY),
        ({"order": "first"}, {"strategy": {"blocks": 4}, "learning_rate": 0.05}, MEMORY),
        ({"order": "both"}, {"strategy": {"blocks": 4, "memory": 40_000}, "precision": "bfloat16"}, MEMORY),
    ],
)
def test_trainings_end_near_the_cpus(
    tmp_path: Path, graph: Parent, model: dict[str, Any], options: dict[str, Any], memory: int
) -> None:
    """Not with its bits: here a pair whose negatives hold its context, or one twice, has all slopes before any step."""
    asked = small_recipe(model, options)
    ours, theirs = (train(asked, graph, tmp_path / name, each) for name, each in (("device", memory), ("cpu", None)))
    assert_near(ours, theirs)
    assert theirs.settings == ours.settings


@pytest.mark.skipif(DEVICE.type == "cuda", reason="steps without locks differ from run to run")
def test_where_blocks_lie_makes_no_difference(tmp_path: Path, graph: Parent) -> None:
    """Those that are not trained in files or not."""
    found = []
    for cpu_memory in (None, 30_000):
        asked = small_recipe({}, {"strategy": {"blocks": 3, "memory": cpu_memory}})
        engine = train(asked, graph, tmp_path / str(cpu_memory), MEMORY)
        assert (engine.grid.room is None) == (cpu_memory is None)
        found.append((rows(engine), losses(engine)))
    for others, their_losses in found[1:]:
        assert distance(found[0][0], others) == 0
        assert their_losses == found[0][1]


@pytest.mark.parametrize("strategy", [{}, {"blocks": 3}, {"blocks": 4, "memory": 30_000}])
def test_an_interrupted_training_goes_on_from_its_checkpoint(
    tmp_path: Path, graph: Parent, monkeypatch: pytest.MonkeyPatch, strategy: dict[str, Any]
) -> None:
    asked = small_recipe({}, {"strategy": strategy, "checkpoint_minutes": 1e-9})
    whole = train(asked, graph, tmp_path / "whole", MEMORY)
    with stopped_at(2):
        train(asked, graph, tmp_path / "broken", MEMORY)
    # What goes on is rows that were learnt: none that are drawn anew.
    monkeypatch.setattr(grid, "first_rows", lambda tables, key, table: None)
    broken = train(asked, graph, tmp_path / "broken", MEMORY)
    monkeypatch.undo()
    assert broken.progress.step == whole.progress.step == 3
    shrink(monkeypatch)
    assert_near(broken, whole)
    if DEVICE.type == "cpu":  # the interpreter takes steps in one order
        assert distance(rows(broken), rows(whole)) == 0
        assert losses(broken) == losses(whole)


def test_a_family_trains_on_the_device(tmp_path: Path, graph: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    train_on(monkeypatch, MEMORY)
    job = make_job(small_recipe({}, {}), graph, tmp_path / "work")
    family_of(job.train).train(job, Ranks())
    result = json.loads((job.work / RESULT).read_text())
    assert result["device"] == str(DEVICE)
    assert result["rows"] == pytest.approx(78, rel=0.2)
    assert vectors(job).norm(dim=1).numpy() == pytest.approx(np.ones(300), abs=1e-5)


def test_ranks_train_the_same_rounds(tmp_path: Path, graph: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each on a device, with blocks that travel between them, one of them in files."""
    found: list[Job] = []
    for name, memory in (("cpu", 0), ("device", MEMORY)):
        asked = small_recipe({"order": "both"}, {"strategy": {"blocks": 4, "memory": 40_000}, "num_ranks": 2})
        found.append(make_job(asked, graph, tmp_path / name))
        monkeypatch.setenv(VARIABLE, str(memory))
        run_ranks("tests.train.device_trainings", 2, found[-1])
    expected, ours = (vectors(job) for job in found)
    assert torch.linalg.norm(ours - expected) < 0.05 * torch.linalg.norm(expected)
    assert not torch.equal(ours, expected)  # the steps were Triton's


def test_the_benchmark_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import tables

    monkeypatch.setattr(pairs, "_CHUNK_PAIRS", 6)
    sizes = ["--nodes", "200", "--edges", "800", "--dim", "4", "--length", "3", "--samples", "6", "--rounds", "1"]
    folders = ["--out", str(tmp_path), "--home", str(tmp_path / "home")]
    for blocks in ("1", "2"):
        assert tables.main([*sizes, *folders, "--blocks", blocks, "--device", DEVICE.type, "--limit", "0"]) == 0
        found = json.loads((tmp_path / "tables.json").read_text())
        assert found["whole"]["device"]["finite"]
        assert found["whole"]["CPU"]["finite"]
        assert len(found["steps"]) == 9
