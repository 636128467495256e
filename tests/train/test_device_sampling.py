"""Batches that are made on a device are the CPU's, bit by bit; what is not fit for that is refused."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from models.block import Batch
from tasks.sampling.rows.features import FeatureSource
from tasks.train.loaders.neighbor import NeighborLoader
from tests.loaders import make_loader
from tests.train.device_trainings import make_device_engine
from tests.train.in_process import make_job, own_settings, run_engine
from tests.train.test_equal_bits import partition as partition_of
from tests.train.test_equal_bits import recipe
from tests.train.test_subgraph_loaders import neighbor_loader, open_graph
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES


def assert_equal(found: Any, expected: Any, name: str = "batch") -> None:
    """Compare all fields of dataclasses, tensors by dtype and bits."""
    if isinstance(expected, torch.Tensor):
        assert found.dtype == expected.dtype, name
        assert torch.equal(found.cpu(), expected), name
    elif isinstance(expected, list):
        assert len(found) == len(expected), name
        for number, pair in enumerate(zip(found, expected, strict=True)):
            assert_equal(*pair, f"{name}[{number}]")
    elif hasattr(expected, "__dataclass_fields__"):
        for field in fields(expected):
            if field.compare and field.name != "num_drawn":
                assert_equal(getattr(found, field.name), getattr(expected, field.name), f"{name}.{field.name}")
    else:
        assert found == expected, name


def both(made: Any) -> tuple[NeighborLoader, NeighborLoader]:
    from tasks.train.loaders.on_device import move_sampling

    ours, theirs = made(), made()
    move_sampling(ours, DEVICE)
    return ours, theirs


def compare_batches(ours: NeighborLoader, theirs: NeighborLoader) -> None:
    for key, positions in enumerate([np.arange(0, 150, 4), np.array([3]), np.array([7, 7, 2, 100])]):
        found: Batch = ours.batch(positions, key).to(DEVICE)
        assert_equal(found, theirs.batch(positions, key))


@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("hop", ["fused", "sampled"])
def test_batches(tmp_path: Path, hop: str, dtype: torch.dtype, stored: str) -> None:
    store = open_graph(tmp_path, features=stored)
    options: dict[str, Any] = {"dtype": dtype, "batch_size": 40}
    compare_batches(*both(lambda: neighbor_loader(store, (4, 3, 2), hop, **options)))


def test_what_has_no_room_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.train.loaders import on_device

    monkeypatch.setattr(on_device, "_SHARE", 1e-9)
    loader = neighbor_loader(open_graph(tmp_path), (4, 3), "fused")
    with pytest.raises(RecipeError, match=r"graph and features take .* GB.*set train\.sampling=cpu"):
        on_device.move_sampling(loader, DEVICE)


def test_a_graph_without_features(tmp_path: Path) -> None:
    store = open_graph(tmp_path)
    compare_batches(*both(lambda: make_loader("neighbor", store, FeatureSource(None, None), fanout=(4, 3))))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fanout": (3, -1)}, r"fan-out of -1 takes all"),
        ({"fanout": (3, -1), "first_hop": "precomputed"}, r"knows nothing of train\.loader\.first_hop=precomputed"),
    ],
)
def test_what_is_not_fit_is_refused(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    from tasks.train.loaders.on_device import move_sampling

    store = open_graph(tmp_path)
    hop = options.pop("first_hop", "sampled")
    loader = neighbor_loader(store, options.pop("fanout", (4, 3)), hop, **options)
    with pytest.raises(RecipeError, match=message):
        move_sampling(loader, DEVICE)
    with pytest.raises(RecipeError, match=r"is for train\.loader=neighbor"):
        move_sampling(make_loader("full", store), DEVICE)


def test_a_training_learns_what_it_learns_with_the_cpu_s_batches(tmp_path: Path) -> None:
    """To the last bit, where the same device computes. Threads make the batches."""
    parent = partition_of(tmp_path / "graph", "node")
    found = []
    for sampling in ("cpu", "device"):
        loader = {"name": "neighbor", "fanout": [3, 2], "batch_size": 64}
        made = recipe("fused", loader=loader, epochs=1, sampling=sampling, sampling_threads=2)
        with own_settings():
            engine = make_device_engine(make_job(made, parent, tmp_path / sampling))
            run_engine(engine)
        found.append(engine.model.state_dict())
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


def test_a_cpu_does_not_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tasks.train.loaders.on_device import move_sampling

    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(RecipeError, match=r"train\.sampling=device needs a GPU.*set train\.sampling=cpu"):
        move_sampling(make_loader("neighbor", open_graph(tmp_path), fanout=(3,)), torch.device("cpu"))
