"""Self-training: several trainings in a row, each with the confident predictions of the one before as labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from configs.errors import RecipeError
from configs.training import TrainConfig
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import BEST, GnnJob


def check(train: TrainConfig, manifest: PartitionManifest) -> None:
    """Raise RecipeError where self-training is asked for and the task is not one class a node."""
    found = (manifest.task, manifest.task_type, manifest.num_tasks)
    if train.self_training is not None and found != ("node", "multiclass", 1):
        raise RecipeError(
            f"train.self_training is for one class a node, and {manifest.dataset} is a {manifest.task} task "
            f"({manifest.task_type}); remove it"
        )


def trainings(job: GnnJob) -> list[GnnJob]:
    """Return the trainings that make up a job, in order; the last one works in the job's own folder.

    Each of the others has a folder and a digest of its own, and each but the first learns from the one before it.
    """
    rounds = job.train.self_training.rounds if job.train.self_training else 0
    folders = [job.work / f"round-{number}" for number in range(rounds)]
    jobs = [
        replace(job, work=folder, digest=f"{job.digest}-{number}", teacher=_teacher(folders, number))
        for number, folder in enumerate(folders)
    ]
    return [*jobs, replace(job, teacher=_teacher(folders, rounds))]


def _teacher(folders: list[Path], number: int) -> Path | None:
    return folders[number - 1] / BEST if number else None
