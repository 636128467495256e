"""What one of two ranks runs in test_unequal_ranks.py: `python unequal_ranks.py JOB ...`, with a rank's variables set.

Trains each job in turn. One whose folder is called `stopped` ends within its first epoch and goes on from there.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch

from tasks.train.gradients.engine import GradientEngine
from tasks.train.job import Job
from tasks.train.ranks.collectives import joined
from tasks.train.run import run
from tasks.train.strategies.base import Ranks
from tests.train.in_process import run_engine, stopped_at
from tests.train.two_processes import end


def main(paths: list[str]) -> None:
    rank = int(os.environ["RANK"])
    ranks, cpu = Ranks(rank, 2, rank, 2), torch.device("cpu")
    torch.set_num_threads(1)
    with joined(ranks, cpu):
        for path in paths:
            job = Job.load(Path(path))
            if job.work.name == "stopped":
                with stopped_at(3):
                    run(GradientEngine(job, ranks, cpu))
            run_engine(GradientEngine(job, ranks, cpu))


if __name__ == "__main__":
    main(sys.argv[1:])
    end()
