"""Trainings of tables so small that Triton's interpreter takes seconds for one: a pair takes it a thirtieth of one.

Also a program: `python -m tests.train.device_trainings JOB...` is what ranks run in test_device_tables.py, with
a rank's variables set, and DEVICE_MEMORY where they train on a device.
"""

from __future__ import annotations

import os
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.kernels.tables.row_tables import RowTable
from tasks.train.loaders import pairs
from tasks.train.tables import device, grid, objective
from tasks.train.tables.device import RankDevice
from tasks.train.tables.grid import Key, TableSpec
from tests.train import grid_ranks
from tests.train.test_tables import recipe
from tests.triton_device import DEVICE

MEMORY = 10**9
"""Bytes on a device where all has room."""
WALKS: dict[str, Any] = {"name": "walks", "length": 8, "window": 2}
VARIABLE = "DEVICE_MEMORY"


def small_recipe(model: dict[str, Any], options: dict[str, Any]) -> Any:
    """Three pools of a chunk each, trained at a rate that shows."""
    strategy = {"name": "block_grid", "pool": 26, **options.get("strategy", {})}
    made = {"loader": WALKS, "samples": 78, "learning_rate": 0.5, **options, "strategy": strategy}
    return recipe(model={"dim": 8, "negatives": 2, **model}, train=made)


def shrink(patch: pytest.MonkeyPatch) -> None:
    """Draw few pairs at a time, and begin with rows that few steps move: word2vec's are near 0, and contexts' are 0."""
    patch.setattr(pairs, "_CHUNK_PAIRS", 26)
    patch.setattr(objective, "_PART_PAIRS", 4)
    patch.setattr(grid, "first_rows", random_rows)


def random_rows(tables: TableSpec, key: Key, table: RowTable) -> None:
    """Fill a block as trainings begin here."""
    random = np.random.default_rng(zlib.crc32(repr(key).encode()))
    table.write(slice(None), random.normal(size=(table.num_rows, table.width)).astype(np.float32) / 3)


def train_on(patch: pytest.MonkeyPatch, memory: int | None) -> None:
    """Have trainings run on the device, with so much memory there; None: on the CPU."""
    patch.setattr(device, "choose_place", lambda *_: RankDevice(DEVICE, memory) if memory else place_of_cpu())


def make_device_engine(job: Any) -> Any:
    """The only rank of a GNN's training, on the device."""
    from tasks.train.gradients.engine import GradientEngine
    from tasks.train.strategies.base import Ranks

    return GradientEngine(job, Ranks(), DEVICE)


def place_of_cpu() -> RankDevice:
    """The CPU, also where there is a GPU."""
    import torch

    return RankDevice(torch.device("cpu"))


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as settings:
        shrink(settings)
        train_on(settings, int(os.environ.get(VARIABLE, 0)) or None)
        for argument in sys.argv[1:]:
            grid_ranks.main(Path(argument))
        grid_ranks.end()
