"""The bookkeeper of all trainings, its journal, and files that were changed after they were written."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import CheckpointError, RecipeError
from configs.load import build_recipe
from tasks.evaluators.evaluators import Evaluator
from tasks.storage.graph_store import GraphStore
from tasks.train.job import BEST, LAST, METRICS, PROGRESS, Job
from tasks.train.node_vectors.heads import finish_vectors
from tasks.train.run import Bookkeeper, run
from tasks.train.state import checkpoint, journal
from tasks.train.state.journal import Journal, Progress
from tasks.train.strategies.base import Ranks
from tasks.train.tables.block_engine import PairEngine
from tests.knowledge_graphs import triple_graph
from tests.support import multiplex_graph, node_graph, written
from tests.train.in_process import make_engine, make_job, own_settings, run_engine, stopped_at
from tests.train.test_tables import train

FEW: dict[str, Any] = {"epochs": 4, "threads": 1, "checkpoint_minutes": 1e-9}
BATCHES = {"name": "neighbor", "batch_size": 64}
SAMPLES: dict[str, Any] = {"samples": 400_000, "threads": 1, "strategy": {"pool": 50_000}}
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "gradients": (node_graph, {"model": {"name": "graphsage", "hidden_dim": 8}, "train": {**FEW, "loader": BATCHES}}),
    "knowledge": (
        triple_graph,
        {
            "dataset": "synthetic_triples",
            "model": {"name": "complex", "dim": 8},
            "train": {**FEW, "eval_every": 1, "loader": {"batch_size": 64, "negatives": 8}},
        },
    ),
    "multiplex": (
        multiplex_graph,
        {
            "dataset": {"name": "synthetic", "task": "link"},
            "model": {"name": "gatne", "dim": 8, "edge_dim": 2, "attention_dim": 2},
            "train": {**FEW, "patience": None, "loader": {"length": 6, "window": 2}, "walks": 4, "batch_size": 1000},
            "evaluate": {"evaluator": "rocauc"},
        },
    ),
    "tables": (node_graph, {"model": {"name": "skipgram", "dim": 8}, "train": SAMPLES}),
    "factors": (node_graph, {"model": {"name": "prone", "dim": 8}, "train": {"threads": 1}}),
}
ONCE = ("tables", "factors")
"""Families that measure at the end only."""


def family_job(family: str, folder: Path, name: str = "work") -> Job[Any]:
    make_graph, sections = FAMILIES[family]
    graph = make_graph(folder / "graph")
    graph = graph if family == "knowledge" else written(graph)
    return make_job(build_recipe({"name": "demo", "dataset": "synthetic", **sections}), graph, folder / name)


@pytest.mark.parametrize("scores", [(math.nan, 0.2, math.nan, 0.1), (math.nan,) * 4, (0.3, math.nan, 0.3, 0.2)])
@pytest.mark.parametrize("family", FAMILIES)
def test_the_best_is_chosen_by_one_rule(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, scores: tuple[float, ...]
) -> None:
    """The first validation counts even if its metric is nan, so that there is a best; any number is better."""
    numbers: Iterator[float] = iter(scores)
    monkeypatch.setattr(Evaluator, "score", lambda self, metrics: scores[0] if family in ONCE else next(numbers))
    job = family_job(family, tmp_path)
    result = train(job)
    best = 0 if family in ONCE or math.isnan(scores[1]) else 1
    assert result["best_epoch"] == best + 1
    assert result["best_metric"] == pytest.approx(scores[best], nan_ok=True)
    stored = torch.load(job.work / BEST, weights_only=True)
    assert stored["epoch"] == best + 1
    assert stored["metric"] == pytest.approx(scores[best], nan_ok=True)
    assert next(numbers, None) is None or family in ONCE


def test_patience_counts_validations_that_are_no_better() -> None:
    progress = Progress()
    taken = []
    for epoch, score in enumerate((math.nan, math.nan, 0.1, 0.1, 0.0, 0.2), 1):
        progress.epoch = epoch
        taken.append((progress.take_score(score), progress.evaluations_without_gain))
    assert taken == [(True, 0), (False, 1), (True, 0), (False, 1), (False, 2), (True, 0)]
    assert (progress.best_epoch, progress.best_metric) == (6, 0.2)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_that_ended_goes_on_to_the_same_files(tmp_path: Path, family: str) -> None:
    whole, broken = (family_job(family, tmp_path, name) for name in ("whole", "broken"))
    expected = train(whole)
    last = 1 if family == "factors" else 3
    with stopped_at(last):
        train(broken)
    result = train(broken)
    for name in ("best_epoch", "epochs_run", "rows", "num_parameters"):
        assert result[name] == expected[name], name
    assert result["best_metric"] == expected["best_metric"]
    assert lines(whole) == lines(broken)
    ours, theirs = (torch.load(job.work / BEST, weights_only=True)["model"] for job in (broken, whole))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def lines(job: Job[Any]) -> list[dict[str, float]]:
    """The journal, but for times."""
    found = [json.loads(line) for line in (job.work / METRICS).read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "seconds" and not k.endswith("per_second")} for line in found]


def test_the_first_step_and_the_first_seconds_say_nothing_of_the_time_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = 0.0
    monkeypatch.setattr(journal.time, "monotonic", lambda: clock)
    progress = Progress()
    kept = Journal(tmp_path, progress, total_steps=100, epochs=10, world_size=1, writes=True)

    def left() -> float | None:
        kept.write_progress(force=True)
        found: float | None = json.loads((tmp_path / PROGRESS).read_text())["eta_seconds"]
        return found

    assert left() is None
    progress.step, clock = 1, 30.0  # compiles
    assert left() is None
    progress.step, clock = 3, 32.0
    assert left() is None
    progress.step, clock = 11, 40.0
    assert left() == 89.0  # a second a step, whatever the first one took


def test_what_was_recorded_after_the_checkpoint_is_cut_back_on_machines_with_other_times(tmp_path: Path) -> None:
    saved: dict[str, Any] = {}
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder, seconds in zip(folders, (1.0, 12345.678), strict=True):
        folder.mkdir()
        progress = Progress(seconds=seconds)
        kept = Journal(folder, progress, total_steps=9, epochs=9, world_size=2, writes=True)
        for step in (1, 2, 3):
            progress.step = step
            kept.record({"loss": 0.5})
            if step == 2:
                kept.note_checkpoint()
                saved = dataclasses.asdict(progress) if folder is folders[0] else saved
    for folder in folders:  # both go on from the first one's checkpoint
        Journal(folder, Progress(**saved), total_steps=9, epochs=9, world_size=2, writes=True)
        lines = (folder / METRICS).read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == [1, 2]


def table_job(tmp_path: Path, **train: Any) -> Job[Any]:
    """A short training of two blocks."""
    options = {"samples": 50_000, "loader": {"length": 20, "window": 3}, "threads": 1, "strategy": {"blocks": 2}}
    model = {"name": "skipgram", "dim": 16}
    asked = build_recipe({"name": "demo", "dataset": "synthetic", "model": model, "train": {**options, **train}})
    return make_job(asked, written(node_graph(tmp_path / "graph")), tmp_path / "work")


def flip(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1 << 6
    path.write_bytes(content)


def test_a_block_that_was_damaged_after_the_last_pool_is_named(tmp_path: Path) -> None:
    """All that is left to do then is to make vectors of its rows."""
    job = table_job(tmp_path)

    with own_settings():
        run(PairEngine(job, Ranks()))
    (file,) = (job.work / "blocks").glob("second.centres.1.*")
    flip(file, 4003)
    with pytest.raises(CheckpointError, match=rf"{file.name} was changed after it was written"):
        train(job)
    flip(file, 4003)
    train(job)


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e30])
def test_vectors_that_are_not_finite_are_not_published(tmp_path: Path, number: float) -> None:
    job = table_job(tmp_path)
    vectors = np.ones((300, 16), np.float32)
    vectors[7, 3] = number
    journal = Journal(job.work, Progress(), 1, 1, 1, writes=True)
    message = re.escape("gave 1 of 300 nodes vectors that are not finite")
    with pytest.raises(RecipeError, match=message + ".*Lower train.learning_rate"):
        finish_vectors(job, GraphStore.open(job.graph), torch.from_numpy(vectors), journal)


def gnn_job(tmp_path: Path) -> Job[Any]:
    """An epoch of a small GNN."""
    model = {"name": "graphsage", "hidden_dim": 8, "num_layers": 2}
    asked = build_recipe({"name": "demo", "dataset": "synthetic", "model": model, "train": {"epochs": 1}})
    return make_job(asked, written(node_graph(tmp_path / "graph")), tmp_path / "work")


@pytest.mark.parametrize("family", ["table", "gnn"])
def test_a_checkpoint_with_a_flipped_bit_is_never_gone_on_from(tmp_path: Path, family: str) -> None:
    """Wherever the bit is: in numbers, in what says where they lie, or in names."""
    job = table_job(tmp_path) if family == "table" else gnn_job(tmp_path)
    with own_settings():
        run_engine(PairEngine(job, Ranks()) if family == "table" else make_engine(job))
    path = job.work / LAST
    whole = path.read_bytes()
    wanted = checkpoint.load(path, job.digest)
    found = []
    for byte in np.random.default_rng(0).choice(len(whole), 400, replace=False).tolist():
        flip(path, byte)
        try:  # what fills up to a record's place in the file, and dates, say nothing
            assert repr(checkpoint.load(path, job.digest)) == repr(wanted)
        except CheckpointError as error:
            found.append(str(error))
        path.write_bytes(whole)
    assert len(found) > 100
    assert all(str(path) in message for message in found)


@pytest.mark.parametrize("family", ["table", "gnn"])
@pytest.mark.parametrize("key", ["progress", "model", "settings", "blocks", "optimizer"])
def test_a_checkpoint_without_its_parts_is_named(tmp_path: Path, family: str, key: str) -> None:
    """As one of another version may be, or one that somebody else made."""
    job = table_job(tmp_path) if family == "table" else gnn_job(tmp_path)

    def begin() -> Any:
        with own_settings():
            return PairEngine(job, Ranks()) if family == "table" else make_engine(job)

    Bookkeeper(begin()).save()
    path = job.work / LAST
    state = checkpoint.load(path)
    if key not in state:
        return
    for damaged in ({name: part for name, part in state.items() if name != key}, {**state, key: {"no": 1}}):
        checkpoint.save_atomic(damaged, path)
        with pytest.raises(CheckpointError, match=rf"{re.escape(str(path))} is damaged: "):
            begin()
