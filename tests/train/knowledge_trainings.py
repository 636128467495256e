"""Short trainings of knowledge graphs, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from configs.schema import Recipe
from tasks.train.job import BEST, LAST
from tasks.train.knowledge.engine import TripleEngine
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tasks.train.tables.device import RankDevice
from tests.train.in_process import make_job, own_settings, run_engine, stopped_at

FAST: dict[str, Any] = {"epochs": 40, "eval_every": 20, "learning_rate": 0.3, "threads": 1}
LOADER: dict[str, Any] = {"batch_size": 64, "negatives": 32}


def recipe(**changes: Any) -> Recipe:
    train = {**FAST, "loader": LOADER, **changes.pop("train", {})}
    model = {"name": "complex", "dim": 32, **changes.pop("model", {})}
    return Recipe.model_validate(
        {"name": "demo", "dataset": "synthetic_triples", "model": model, "train": train, **changes}
    )


def trained(
    graph: Any, work: Path, asked: Recipe, ranks: Ranks | None = None, place: RankDevice | None = None
) -> TripleEngine:
    with own_settings():
        engine = TripleEngine(make_job(asked, graph, work), ranks or Ranks(), place)
        run_engine(engine)
    return engine


def best(work: Path) -> dict[str, Any]:
    return checkpoint.load(work / BEST)


def best_mrr(work: Path) -> float:
    return float(best(work)["metric"])


def check_same(one: Path, two: Path) -> None:
    """Two trainings have ended with the same rows, to the bit."""
    first, second = best(one), best(two)
    assert first["metric"] == second["metric"]
    assert all(torch.equal(first["model"][name], second["model"][name]) for name in first["model"])


def trained_up_to(step: int, graph: Any, work: Path, asked: Recipe, place: RankDevice | None = None) -> None:
    """Train up to the checkpoint of a step, and no further."""

    with stopped_at(step):
        trained(graph, work, asked, place=place)
    assert (work / LAST).exists()
