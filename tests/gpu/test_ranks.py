"""Two ranks on one GPU: they come to what two ranks on the CPU come to, and neither's end leaves the other waiting."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from configs.errors import StageError
from configs.load import build_recipe
from configs.schema import Recipe
from configs.trust import own_files
from tasks.stage import Parent, run_stage
from tasks.storage.home import Home
from tasks.train.stage import STAGE
from tests.gpu.where import DEVICE, MARKS
from tests.support import as_partition, node_graph

pytestmark = MARKS
FAILING = """
import os

from configs.registry import MODELS
from models.configs import GraphSageConfig
from models.gnn.graphsage import GraphSage


@MODELS.register("failing")
class Failing(GraphSage):
    \"\"\"Fails on rank 1, in its fourth step.\"\"\"

    class Config(GraphSageConfig):
        pass

    steps = 0

    def forward(self, batch):
        self.steps += self.training
        if os.environ["RANK"] == "1" and self.steps == 4:
            raise ZeroDivisionError("rank 1 has had enough")
        return super().forward(batch)
"""


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home.open(tmp_path / "home")


def graph(folder: Path) -> Parent:
    parent = as_partition(node_graph(folder, num_nodes=400))
    (folder / "manifest.json").write_text(parent.manifest.model_dump_json())
    return parent


def recipe(device: str, *overrides: str, **model: Any) -> Recipe:
    data = {
        "name": "ranks",
        "dataset": {"name": "synthetic"},
        "model": {"name": "graphsage", "hidden_dim": 16, "num_layers": 2, "dropout": 0.0, **model},
        "train": {
            "epochs": 4,
            "loader": {"name": "neighbor", "batch_size": 32},
            "threads": 1,
            "learning_rate": 0.01,
            "num_ranks": 2,
            "share_gpu": True,
            "device": device,
        },
    }
    return build_recipe(data, overrides)


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["train/loss"] for line in lines if "train/loss" in line]


def test_two_ranks_share_a_gpu(tmp_path: Path, home: Home) -> None:
    parent = {"partition": graph(tmp_path / "g")}
    found = losses(run_stage(STAGE, recipe(DEVICE.type), parent, home).folder)
    other = Home.open(tmp_path / "cpu")
    assert found == pytest.approx(losses(run_stage(STAGE, recipe("cpu"), parent, other).folder), rel=0.02)


def workers(folder: Path, rank: int) -> list[int]:
    """Processes that write a rank's log."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            files = [str(entry.readlink()) for entry in (process / "fd").iterdir()]
        except OSError:
            continue
        if any(file.startswith(str(folder)) and file.endswith(f"rank-{rank}.log") for file in files):
            found.append(int(process.name))
    return found


def test_a_rank_that_raises_ends_the_job_at_once(tmp_path: Path, home: Home) -> None:
    own = tmp_path / "failing.py"
    own.write_text(FAILING)
    began = time.monotonic()
    with own_files(), pytest.raises(StageError, match=r"rank 1 ended with ZeroDivisionError: rank 1 has had enough"):
        run_stage(STAGE, recipe(DEVICE.type, name="failing", file=str(own)), {"partition": graph(tmp_path / "g")}, home)
    assert time.monotonic() - began < 240
    assert not workers(home.work, 0) + workers(home.work, 1)
