"""What one of two ranks runs in test_unequal_ranks.py: `python unequal_ranks.py JOB ...`, under torchrun's variables.

Trains each job in turn. One whose folder is called `stopped` ends within its first epoch and goes on from there.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import torch

from tasks.train.gradients.engine import Trainer
from tasks.train.job import Job
from tasks.train.ranks.collectives import joined
from tasks.train.strategies.base import Ranks
from tests.train.two_processes import end


class StoppedError(Exception):
    """The training ends here."""


def stop_at(trainer: Trainer, step: int) -> None:
    """Leave a checkpoint after a step and end."""

    def save() -> None:
        if trainer.progress.step == step:
            trainer._save_last()
            raise StoppedError

    trainer._save_in_between = save  # type: ignore[method-assign]
    with contextlib.suppress(StoppedError):
        trainer.run()
    assert trainer.progress.step == step


def main(paths: list[str]) -> None:
    rank = int(os.environ["RANK"])
    ranks, cpu = Ranks(rank, 2, rank, 2), torch.device("cpu")
    torch.set_num_threads(1)
    with joined(ranks, cpu):
        for path in paths:
            job = Job.load(Path(path))
            if job.work.name == "stopped":
                stop_at(Trainer(job, ranks, cpu), 3)
            Trainer(job, ranks, cpu).run()


if __name__ == "__main__":
    main(sys.argv[1:])
    end()
