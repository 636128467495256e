"""Tables trained on a device: the chunks of the CPU's trainer, and rows near those that it comes to."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from models.vectors import SampledModel
from tasks.arrays import Array
from tasks.sampling.neighbors import derive_key
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders import edges as edge_loader
from tasks.train.loaders import walks as walk_loader
from tasks.train.loaders.pairs import PairLoader
from tasks.train.strategies.base import Ranks
from tasks.train.tables import device as device_training
from tasks.train.tables.device import NEGATIVES, DeviceTraining, Objective, ResidentBlocks, negative_keys
from tasks.train.tables.pools import draw_pool
from tasks.train.tables.trainer import Trainer
from tests.support import node_graph
from tests.train.in_process import make_job, own_settings
from tests.train.test_tables import make_loader, recipe, written
from tests.triton_device import DEVICE, MARKS

pytestmark = MARKS
CHUNKS = range(3, 5)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """The CPU's trainer is exact with one thread only."""
    with own_settings():
        yield


@pytest.fixture(autouse=True)
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pair takes the interpreter a hundredth of a second."""
    monkeypatch.setattr(walk_loader, "_CHUNK_PAIRS", 40)
    monkeypatch.setattr(edge_loader, "_CHUNK_PAIRS", 40)
    monkeypatch.setattr(device_training, "PART_PAIRS", 16)


WALKS: dict[str, Any] = {"name": "walks", "length": 8, "window": 2}


@pytest.mark.parametrize(
    "options", ["edges", WALKS, {**WALKS, "start": "degree", "shrink": True, "forward": True, "q": 2.0}]
)
def test_pairs_are_those_of_the_cpu(tmp_path: Path, options: Any) -> None:
    parent = node_graph(tmp_path)
    loader: PairLoader = make_loader(GraphStore(parent.folder, parent.manifest), options)
    made = [loader.on_device(DEVICE), PairLoader.on_device(loader, DEVICE)]
    for centres, contexts, counts in (pairs.fill(CHUNKS) for pairs in made):
        for number, chunk in enumerate(CHUNKS):
            expected = np.empty((2, loader.room), np.int32)
            count = loader.fill(chunk, *expected)
            assert counts[number] == count
            found = torch.stack([centres[number, :count], contexts[number, :count]])
            assert np.array_equal(found.cpu().numpy(), expected[:, :count])


def test_keys_of_negatives_are_those_of_the_trainer() -> None:
    expected = [derive_key(11, NEGATIVES, chunk, 0, 0) for chunk in range(70, 90)]
    assert negative_keys(11, range(70, 90)).tolist() == expected


def trainers(tmp_path: Path, model: dict[str, Any], options: dict[str, Any], **given: Any) -> tuple[Trainer, Any, Any]:
    """The trainer, another one with the same tables, and the training of these on the device."""
    asked = recipe(model={"dim": 8, "negatives": 2, **model}, train={"loader": WALKS, "learning_rate": 0.5, **options})
    graph = written(node_graph(tmp_path / "graph"))
    cpu, other = (Trainer(make_job(asked, graph, tmp_path / name), Ranks()) for name in ("cpu", "device"))
    rng = np.random.default_rng(0)
    for name, table in cpu.grid.tables().items():
        for own, its in zip(table.blocks, other.grid.tables()[name].blocks, strict=True):
            own.write(slice(None), rng.normal(size=(own.num_rows, own.width)).astype(np.float32) / 3)
            its.values[:] = own.values
    objective = Objective(other.model, other.options, other.job.seed)
    return cpu, other, DeviceTraining(other.loader, other.grid, other.negatives, objective, DEVICE, **given)


def rows(trainer: Trainer) -> list[Array]:
    return [table.read(0, table.num_nodes) for table in trainer.grid.tables().values()]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ({"order": "both"}, {}),
        ({"shared_negatives": 4, "negative_weight": 2.0}, {"loader": "edges", "precision": "bfloat16"}),
        ({"negatives": 1}, {"optimizer": "adagrad", "learning_rate": 0.1}),
    ],
)
def test_chunks_bring_rows_to_where_the_cpu_brings_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: dict[str, Any], options: dict[str, Any]
) -> None:
    monkeypatch.setattr(device_training, "_LAUNCH_PAIRS", 1)
    cpu, other, training = trainers(tmp_path, model, {"threads": 1, **options})
    before = rows(cpu)
    pairs = cpu._train_chunks(CHUNKS)
    assert training.train_chunks(CHUNKS, np.array([other._rate(chunk) for chunk in CHUNKS])) == pairs
    losses = _loss(cpu, cpu.grid.meeting(0, 0)), _loss(other, training.blocks.meeting(0, 0))
    assert losses[1] == pytest.approx(losses[0], rel=0.02)
    training.blocks.copy_back()
    rough = 0.02 if cpu.config.precision == "bfloat16" else 0.005
    for first, ours, theirs in zip(before, rows(cpu), rows(other), strict=True):
        assert np.abs(ours - first).max() > 10 * rough
        # Not all are equal: here a pair whose negatives hold its context, or one twice, has all slopes before any step.
        assert np.quantile(np.abs(ours - theirs), 0.95) < rough


def _loss(trainer: Trainer, tables: Any) -> float:
    centres, contexts = np.random.default_rng(1).integers(300, size=(2, 500))
    drawn = trainer._draw_negatives(500, (1, 2, 3), 0)
    return trainer.model.loss(trainer.options, tables, centres, contexts, drawn)


@pytest.mark.parametrize("most_blocks", [None, 2])
def test_buckets_of_pools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_blocks: int | None) -> None:
    from tasks.train.tables import trainer as cpu_training

    monkeypatch.setattr(device_training, "_LAUNCH_PAIRS", 32)
    monkeypatch.setattr(cpu_training, "_CHUNK_PAIRS", 16)
    strategy = {"name": "block_grid", "blocks": 2}
    cpu, other, training = trainers(tmp_path, {}, {"threads": 1, "strategy": strategy}, most_blocks=most_blocks)
    cpu._train_pool(CHUNKS)
    pool = draw_pool(other.loader, CHUNKS, 2, np.int32)
    for row, column in ((0, 0), (1, 1), (0, 1), (1, 0)):
        training.train_bucket(pool, row, column, CHUNKS.start, other._rate(CHUNKS.start))
    training.blocks.copy_back()
    for ours, theirs in zip(rows(cpu), rows(other), strict=True):
        assert np.quantile(np.abs(ours - theirs), 0.95) < 0.005


def test_blocks_that_make_room_keep_what_they_learnt(tmp_path: Path) -> None:
    strategy = {"name": "block_grid", "blocks": 3}
    _, other, _ = trainers(tmp_path, {"order": "both"}, {"strategy": strategy})
    blocks = ResidentBlocks(other.grid, DEVICE, most=4)
    for row, column in ((0, 0), (1, 2), (1, 0), (0, 0)):
        for own, others in blocks.meeting(row, column).values():
            own.values[0, 0] += 1
            others.values[1, 0] += 10
    blocks.copy_back()
    changed = {
        name: [block.read()[:2, 0].round(-1) for block in table.blocks] for name, table in other.grid.tables().items()
    }
    assert changed["second.contexts"][0][1] == 30
    assert changed["second.contexts"][2][1] == 10
    assert changed["first.centres"][1][1] == 0
    with pytest.raises(AssertionError, match="3 blocks meet, of 2"):
        ResidentBlocks(other.grid, DEVICE, most=2).meeting(0, 0)


def test_a_model_without_a_kernel_says_so(tmp_path: Path) -> None:
    _, other, _ = trainers(tmp_path, {}, {})
    objective = Objective(SampledModel, other.options, 0)
    training = DeviceTraining(other.loader, other.grid, other.negatives, objective, DEVICE)
    with pytest.raises(RecipeError, match=r"model.name=skipgram learns on CPUs only; set train.device=cpu"):
        training.train_chunks(CHUNKS, np.ones(2, np.float32))


def test_the_benchmark_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks import tables

    monkeypatch.setattr(walk_loader, "_CHUNK_PAIRS", 6)
    sizes = ["--nodes", "200", "--edges", "800", "--dim", "4", "--length", "3", "--samples", "6", "--rounds", "1"]
    folders = ["--out", str(tmp_path), "--home", str(tmp_path / "home")]
    tables.main([*sizes, *folders, "--device", DEVICE.type])
    found = json.loads((tmp_path / "tables.json").read_text())
    assert "negatives are the same on both sides" in capsys.readouterr().out
    assert found["whole"]["finite"]
    assert len(found["steps"]) == 9
