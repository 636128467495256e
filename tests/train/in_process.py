"""Trainings in the test's own process: a second each, where a worker of its own takes ten."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from configs.schema import Recipe
from configs.training import TrainConfig
from tasks.train.families import family_of
from tasks.train.gradients.engine import Trainer
from tasks.train.job import RESULT, Job
from tasks.train.strategies.base import Ranks


def make_job(recipe: Recipe, graph: Any, work: Path) -> Job:
    """A job that writes into `work`."""
    work.mkdir(parents=True, exist_ok=True)
    return Job.make(recipe, graph.folder, graph.manifest.digest, work)


def make_trainer(job: Job) -> Trainer:
    """The only rank of a job, on the CPU."""
    return Trainer(job, Ranks(), torch.device("cpu"))


def run_job(job: Job, context: object) -> dict[str, Any]:
    """What the train stage's `run_job` does, here."""
    job.save().unlink()  # what stays is a copy of a model's own file
    with own_settings():
        if job.train.family == TrainConfig.family:
            make_trainer(job).run()
        else:
            family_of(job.train).train(job, Ranks())
    return {**json.loads((job.work / RESULT).read_text()), "restarts": 0}


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
