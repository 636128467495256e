"""The bookkeeper of all trainings: one rule for all families of what is best, and that a run goes on where it ended."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.load import build_recipe
from tasks.evaluators.evaluators import Evaluator
from tasks.train.job import BEST, METRICS, Job
from tasks.train.state.journal import Progress
from tests.knowledge_graphs import triple_graph
from tests.support import multiplex_graph, node_graph
from tests.train.in_process import make_job, stopped_at
from tests.train.test_tables import train, written

FEW: dict[str, Any] = {"epochs": 4, "threads": 1, "checkpoint_minutes": 1e-9}
BATCHES = {"name": "neighbor", "batch_size": 64}
SAMPLES: dict[str, Any] = {"samples": 400_000, "threads": 1, "strategy": {"pool": 50_000}}
FAMILIES: dict[str, tuple[Any, dict[str, Any]]] = {
    "gradients": (
        node_graph,
        {"model": {"name": "graphsage", "hidden_dim": 8}, "train": {**FEW, "loader": BATCHES}},
    ),
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
