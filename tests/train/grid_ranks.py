"""What ranks run in test_grid_ranks.py: `python grid_ranks.py JOB...`, with a rank's variables set."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tasks.train.families import family_of
from tasks.train.job import Job
from tasks.train.strategies.base import Ranks
from tests.train.two_processes import end


def main(path: Path) -> None:
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    job = Job.load(path)
    family_of(job.train).train(job, Ranks(rank, world, rank, world))
    print("done", rank)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        main(Path(argument))
    end()
