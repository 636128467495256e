"""Where tables are trained, and blocks that a device has copies of. Without kernels: Triton is not needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from configs.errors import RecipeError
from models.kernels.tables.row_layout import UpdateRule
from models.vectors.base import SampledModel
from models.vectors.configs import Pairing
from models.vectors.skipgram import SkipGram
from tasks.train.strategies.base import Ranks
from tasks.train.tables import block_engine, device
from tasks.train.tables.block_engine import PairEngine
from tasks.train.tables.device import RankDevice, ResidentBlocks, choose_place, why_no_gpu
from tasks.train.tables.grid import BlockFiles, Grid, Key, TableSpec
from tasks.train.tables.objective import SampleStepper
from tests.support import node_graph, written
from tests.train.in_process import make_job, own_settings
from tests.train.test_tables import recipe

CPU = torch.device("cpu")


@pytest.fixture
def with_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with GPUs, the second one with half of its memory free, and with Triton."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000 // (1 + device.index), 1000))
    monkeypatch.setattr(device, "has_triton", lambda: True)


def options(device: str) -> Any:
    return recipe(train={"device": device}).train


@pytest.mark.usefixtures("with_gpu")
def test_a_gpu_is_taken_where_it_is_asked_for() -> None:
    chosen = choose_place(options("cuda"), 1, why_no_gpu(SkipGram))
    assert (chosen.device, chosen.memory, chosen.workers) == (torch.device("cuda", 1), 400, 1)
    for other in ("auto", "cpu"):
        assert choose_place(options(other), 0) == RankDevice(CPU)
    with pytest.raises(RecipeError, match=r"num_ranks is above the 2 GPU\(s\)"):
        choose_place(options("cuda"), 2, why_no_gpu(SkipGram))


def test_without_a_gpu_the_cpu_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with own_settings():
        torch.set_num_threads(3)
        chosen = choose_place(options("auto"), 0, why_no_gpu(SkipGram))
        assert (chosen, chosen.workers) == (RankDevice(CPU), 3)
    with pytest.raises(RecipeError, match="torch sees no GPU"):
        choose_place(options("cuda"), 0, why_no_gpu(SkipGram))


@pytest.mark.usefixtures("with_gpu")
def test_a_gpu_that_cannot_train_the_model_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnCpus(SampledModel):
        """Defines no steps for GPUs."""

    assert choose_place(options("auto"), 0, why_no_gpu(OnCpus)) == RankDevice(CPU)
    with pytest.raises(RecipeError, match=r"device=cuda: this model learns on CPUs only; set train.device=cpu"):
        choose_place(options("cuda"), 0, why_no_gpu(OnCpus))
    monkeypatch.setattr(device, "has_triton", lambda: False)
    assert choose_place(options("auto"), 0, why_no_gpu(SkipGram)) == RankDevice(CPU)
    with pytest.raises(RecipeError, match=r"device=cuda: .* Triton, which is not installed; set train.device=cpu"):
        choose_place(options("cuda"), 0, why_no_gpu(SkipGram))


def test_ranks_agree_on_where_they_train(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job: Any = make_job(recipe(), written(node_graph(tmp_path / "graph")), tmp_path / "work")
    with own_settings():
        made = PairEngine(job, Ranks())
        assert isinstance(made.stepper, SampleStepper)
        made.place = RankDevice(CPU, 10_000)
        assert made._device_memory() == 10_000
        for others, expected in (([None], None), ([5000, 3000], 3000)):
            monkeypatch.setattr(block_engine, "from_all", lambda own, others=others: others)
            assert made._device_memory() == expected
        monkeypatch.setattr(block_engine, "from_all", lambda own: [own, None])
        with pytest.raises(RecipeError, match="some ranks have a GPU to train on and others have none"):
            made._device_memory()
        monkeypatch.setattr(block_engine, "from_all", lambda own: [own])
        with pytest.raises(RecipeError, match=r"tables of 38.4 kB have no room in the 10.0 kB of the GPU's memory"):
            PairEngine(job, Ranks(), RankDevice(CPU, 10_000))


def make_grid(tmp_path: Path, room: int | None = None) -> Grid:
    """Three blocks of two rows, of three tables."""
    pairings = [Pairing("first", 4, shared=True), Pairing("second", 4)]
    return Grid(TableSpec(pairings, 6, 3, "float32", UpdateRule(), 1), Ranks(), BlockFiles(tmp_path), room)


def change(blocks: ResidentBlocks, row: int, column: int) -> None:
    """Add 1 to a number of each block of centres on the device, and 10 to another of each block of contexts."""
    blocks.grid.load(blocks.grid.keys(row, column), to_change=True)
    for own, others in blocks.meeting(row, column).values():
        own.values[0, 0] += 1
        others.values[1, 0] += 10


def changed(of: Grid, *keys: Key) -> list[list[float]]:
    """The numbers that `change` adds to, without what they began with: that is 1/8 at most."""
    found = []
    for key in keys:
        of.load([key])
        found.append(of.block(key).read()[:, 0].round().tolist())
    return found


@pytest.mark.parametrize("room", [None, 4])
def test_blocks_that_make_room_keep_what_they_learnt(tmp_path: Path, room: int | None) -> None:
    """On the device, in memory and in files."""
    made = make_grid(tmp_path, room)
    blocks = ResidentBlocks(made, CPU)
    for number, (row, column) in enumerate(((0, 0), (1, 2), (1, 0), (0, 0))):
        made.version = number
        change(blocks, row, column)
    found = changed(made, ("second.centres", 0), ("second.centres", 1), ("second.contexts", 0), ("second.contexts", 2))
    assert found == [[2, 0], [2, 0], [0, 30], [0, 10]]
    assert changed(made, *(("first.centres", block) for block in range(3))) == [[2, 30], [2, 0], [0, 10]]


def test_files_and_other_ranks_get_what_the_device_learnt(tmp_path: Path) -> None:
    made = make_grid(tmp_path)
    blocks = ResidentBlocks(made, CPU)
    for version in (1, 2):
        made.version = version
        change(blocks, 0, 1)
        versions = made.save()
        made.saved(versions)
    other = make_grid(tmp_path)
    other.restore(versions)
    assert changed(other, ("second.centres", 0), ("second.contexts", 1)) == [[2, 0], [0, 20]]
