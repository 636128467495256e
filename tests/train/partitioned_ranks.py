"""What each rank of tests/train/test_partitioned.py runs: `python -m tests.train.partitioned_ranks JOB JOB ...`.

Jobs come in pairs: two trainings of one recipe, over a whole graph and over one in parts, whose batches are the same.
So are all losses, metrics and weights, to the bit. With GRAPHMILL_TEST_SHORT_OF_MEMORY set, validation takes itself to
have no room for the rows of other ranks' nodes; with GRAPHMILL_TEST_RANKS_A_MACHINE ranks are on several machines, and
with GRAPHMILL_TEST_NO_COPY_ON one rank has no room for a copy of features.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch

from tasks.inference import layerwise, parts
from tasks.sampling.rows import features as row_features
from tasks.train.gradients.engine import GradientEngine
from tasks.train.job import METRICS, Job
from tasks.train.ranks.collectives import joined
from tasks.train.strategies.base import Ranks
from tests.train.in_process import run_engine
from tests.train.two_processes import end, on_machines


def goes_on(job: Any, ranks: Ranks, engine: GradientEngine) -> None:
    """A run that was killed when its training had written all, and its tables were whole, ends with the same."""
    again = GradientEngine(job, ranks, torch.device("cpu"))
    ours, theirs = again.optimization.embedding, engine.optimization.embedding
    for name, table in {"weight": theirs.weight, **theirs.tensors()}.items():
        assert torch.equal({"weight": ours.weight, **ours.tensors()}[name], table), name
    assert again.progress.epoch == engine.progress.epoch
    run_engine(again)


def trained(path: str, ranks: Ranks) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    job: Any = Job.load(Path(path))
    engine = GradientEngine(job, ranks, torch.device("cpu"))
    run_engine(engine)
    if engine.optimization.embedding is not None:
        goes_on(job, ranks, engine)
    lines = [json.loads(line) for line in (job.work / METRICS).read_text().splitlines()] if ranks.is_main else []
    drop = ("seconds", "seeds_per_second", "edges_per_second")
    return engine.model.state_dict(), [{k: v for k, v in line.items() if k not in drop} for line in lines]


def main(*jobs: str) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    ranks = on_machines(rank, world_size, int(os.environ.get("GRAPHMILL_TEST_RANKS_A_MACHINE", world_size)))
    torch.set_num_threads(1)
    if os.environ.get("GRAPHMILL_TEST_NO_COPY_ON") == str(rank):
        row_features.bfloat16_copy = lambda feat: feat
    if os.environ.get("GRAPHMILL_TEST_SHORT_OF_MEMORY"):
        parts._FREE_SHARE, layerwise._CHUNK_VALUES = 0.0, 256 * (rank + 1)
    with joined(ranks, torch.device("cpu")):
        for whole, in_parts in zip(jobs[::2], jobs[1::2], strict=True):
            expected, expected_records = trained(whole, ranks)
            found, records = trained(in_parts, ranks)
            assert records == expected_records, (whole, records, expected_records)
            for name in found:  # rows of nodes lie on several ranks
                assert torch.equal(found[name], expected[name]), (whole, name)
    print("done", rank)


if __name__ == "__main__":
    main(*sys.argv[1:])
    end()
