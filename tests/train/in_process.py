"""Trainings in the test's own process: a second each, where a worker of its own takes ten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.registry import EMBEDDINGS
from configs.schema import Recipe
from models.base import GraphModel
from models.facts import GraphFacts
from tasks.train import run
from tasks.train.families import family_of
from tasks.train.gradients.engine import GradientEngine
from tasks.train.job import RESULT, Job
from tasks.train.strategies.base import Ranks


def make_job(recipe: Recipe, graph: Any, work: Path) -> Job:
    """A job that writes into `work`."""
    work.mkdir(parents=True, exist_ok=True)
    return Job.make(recipe, graph.folder, graph.manifest.digest, work)


def build_model(job: Any, facts: GraphFacts, ranks: Ranks) -> GraphModel:
    """The recipe's model, as its training begins with it."""
    model: GraphModel = EMBEDDINGS.create(job.train.embeddings).build(job, facts, ranks)
    return model


def make_engine(job: Any) -> GradientEngine:
    """The only rank of a GNN's job, on the CPU."""
    return GradientEngine(job, Ranks(), torch.device("cpu"))


def run_engine(engine: run.Engine) -> None:
    """Train to the end, and write the outcome."""
    run.run(engine)
    run.finish(engine)


def train_here(job: Any) -> None:
    """Train a GNN to the end, and write the outcome."""
    with own_settings():
        run_engine(make_engine(job))


def run_job(job: Job, *_: object) -> dict[str, Any]:
    """What the train stage's `run_training` does, here."""
    job.save().unlink()  # what stays is a copy of a model's own file
    with own_settings():
        family_of(job.train).train(job, Ranks())
    return {**json.loads((job.work / RESULT).read_text()), "restarts": 0, "machines": []}


class StoppedError(Exception):
    """A training ends before its end."""


@contextmanager
def stopped_at(step: int) -> Iterator[None]:
    """Have a training leave a checkpoint after a step, and end there."""
    between = run.Bookkeeper._save_in_between

    def save_and_stop(self: run.Bookkeeper) -> None:
        between(self)
        if self.progress.step == step:
            self.save()
            raise StoppedError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run.Bookkeeper, "_save_in_between", save_and_stop)
        with pytest.raises(StoppedError):
            yield


@contextmanager
def own_settings() -> Iterator[None]:
    """Undo what a training sets for its whole process. One thread, so that sums have one order."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.set_num_threads(threads)
