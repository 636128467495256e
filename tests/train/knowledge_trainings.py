"""Short trainings of knowledge graphs, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from configs.schema import Recipe
from tasks.train.job import BEST, LAST
from tasks.train.knowledge.trainer import KnowledgeTrainer
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tasks.train.tables.place import Place
from tests.train.in_process import make_job, own_settings

FAST: dict[str, Any] = {"epochs": 40, "eval_every": 20, "learning_rate": 0.3, "threads": 1}
LOADER: dict[str, Any] = {"batch_size": 64, "negatives": 32}


def recipe(**changes: Any) -> Recipe:
    train = {**FAST, "loader": LOADER, **changes.pop("train", {})}
    model = {"name": "complex", "dim": 32, **changes.pop("model", {})}
    return Recipe.model_validate(
        {"name": "demo", "dataset": "synthetic_triples", "model": model, "train": train, **changes}
    )


def trained(
    graph: Any, work: Path, asked: Recipe, ranks: Ranks | None = None, place: Place | None = None
) -> KnowledgeTrainer:
    with own_settings():
        trainer = KnowledgeTrainer(make_job(asked, graph, work), ranks or Ranks(), place)
        trainer.run()
        trainer.finish()
    return trainer


def best(work: Path) -> dict[str, Any]:
    return checkpoint.load(work / BEST)


def best_mrr(work: Path) -> float:
    return float(best(work)["metric"])


def check_same(one: Path, two: Path) -> None:
    """Two trainings have ended with the same rows, to the bit."""
    first, second = best(one), best(two)
    assert first["metric"] == second["metric"]
    assert all(torch.equal(first["model"][name], second["model"][name]) for name in first["model"])


def stopped_at(
    step: int, graph: Any, work: Path, asked: Recipe, monkeypatch: pytest.MonkeyPatch, place: Place | None = None
) -> None:
    """Train up to the checkpoint of a step, and no further."""

    class StoppedError(Exception):
        pass

    saved = KnowledgeTrainer.save_last

    def save_and_stop(self: KnowledgeTrainer) -> None:
        saved(self)
        if self.progress.step == step:
            raise StoppedError

    with monkeypatch.context() as patch:
        patch.setattr(KnowledgeTrainer, "save_last", save_and_stop)
        with pytest.raises(StoppedError):
            trained(graph, work, asked, place=place)
    assert (work / LAST).exists()
