"""What a step does: precision, loss scaling, accumulation, clipping, learning rates."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from configs.errors import RecipeError
from configs.training import TrainConfig
from models.block import Batch
from models.kernels import backends
from tasks.processes.device import choose_device
from tasks.stage import Parent
from tasks.storage.graph_facts import graph_facts
from tasks.train.gradients.engine import GradientEngine
from tasks.train.gradients.steps import Optimization, check_precision, describe_rate, set_kernels
from tasks.train.ranks import collectives
from tasks.train.ranks.collectives import joined
from tasks.train.state import validation
from tasks.train.strategies.base import Ranks
from tests.loaders import make_loader
from tests.ranked_shop import store_of
from tests.train.in_process import build_model, make_engine, own_settings, run_engine
from tests.train.test_sparse_embeddings import job
from tests.train.test_training import partition, records

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    with own_settings():
        yield


@pytest.fixture
def graph(tmp_path: Path) -> Parent:
    return partition(tmp_path / "g", "node")


def optimization(graph: Parent, work: Path, *overrides: str) -> Optimization:
    """A model without anything that couples the batch's rows, and its optimizer."""
    made = job(graph, work, "train.optimizer=sgd", "model.norm=none", "model.dropout=0", *overrides, task="node")
    torch.manual_seed(3)
    model = build_model(made, graph_facts(graph.manifest), Ranks())
    return Optimization(made.train, model, model, "multiclass", Ranks(), total_steps=100)


def batches(graph: Parent, *positions: np.ndarray) -> list[Batch]:
    store = store_of(graph)
    loader = make_loader("full", store)
    return [loader.batch(some, 0) for some in positions]


def weights(made: Optimization) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1) for p in made.model.parameters()])


def take_step(made: Optimization, parts: list[Batch], number: int = 1) -> list[float]:
    losses = [float(made.backward(part, 1 / len(parts), last=i == len(parts) - 1)) for i, part in enumerate(parts)]
    made.step(number)
    return losses


def test_accumulated_gradients_are_those_of_one_large_batch(tmp_path: Path, graph: Parent) -> None:
    several, one = (optimization(graph, tmp_path / name, "train.clip_norm=0.1") for name in "ab")
    assert torch.equal(weights(several), weights(one))
    before = weights(one)
    for number in range(1, 4):
        parts = batches(graph, np.arange(0, 40), np.arange(40, 80), np.arange(80, 120))
        take_step(several, parts, number)
        take_step(one, batches(graph, np.arange(120)), number)
    torch.testing.assert_close(weights(several), weights(one), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(before, weights(one), atol=1e-3)


def test_a_batch_without_labels_adds_nothing(tmp_path: Path, graph: Parent) -> None:
    made = optimization(graph, tmp_path / "a")
    [empty] = batches(graph, np.arange(0))
    before = weights(made)
    assert take_step(made, [empty]) == [0.0]
    assert torch.equal(weights(made), before)


def test_bfloat16_computes_in_half_keeps_weights_and_validates_in_float32(tmp_path: Path, graph: Parent) -> None:
    made = make_engine(job(graph, tmp_path / "work", "train.precision=bfloat16", task="node"))
    seen: dict[bool, set[torch.dtype]] = {True: set(), False: set()}

    def look(module: Any, given: Any, scores: Any) -> None:
        seen[module.training].add(scores.dtype)

    made.model.head.linear.register_forward_hook(look)  # type: ignore[union-attr]
    run_engine(made)
    assert seen == {True: {torch.bfloat16}, False: {torch.float32}}
    assert {value.dtype for value in made.model.state_dict().values()} == {torch.float32, torch.int64}
    losses = [line["train/loss"] for line in records(tmp_path / "work") if "train/loss" in line]
    plain = make_engine(job(graph, tmp_path / "plain", task="node"))
    run_engine(plain)
    expected = [line["train/loss"] for line in records(tmp_path / "plain") if "train/loss" in line]
    assert losses != expected
    assert losses == pytest.approx(expected, rel=0.05)


def test_devices_that_cannot_be_had_are_refused() -> None:
    check_precision(TrainConfig(precision="tf32"), torch.device("cuda", 0))
    with pytest.raises(RecipeError, match=r"precision=tf32 needs a GPU.*take bfloat16"):
        check_precision(TrainConfig(precision="tf32"), CPU)
    if not torch.cuda.is_available():
        with pytest.raises(RecipeError, match="torch sees no GPU"):
            choose_device("cuda")
        assert choose_device("auto") == CPU


@pytest.mark.parametrize("deterministic", [False, True])
def test_deterministic_algorithms_are_an_option(tmp_path: Path, deterministic: bool) -> None:
    made = job(partition(tmp_path / "g", "link"), tmp_path / "work", f"train.deterministic={deterministic}")
    make_engine(made)
    assert torch.are_deterministic_algorithms_enabled() == deterministic


def test_triton_computes_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = torch.device("cuda", 0)
    with pytest.raises(RecipeError, match=r"kernels=triton needs a GPU.*set train\.kernels=auto"):
        set_kernels(TrainConfig(kernels="triton"), CPU)
    monkeypatch.setattr("tasks.train.gradients.steps.has_triton", lambda: False)
    with pytest.raises(RecipeError, match=r"needs Triton, which is not installed; set train\.kernels=auto"):
        set_kernels(TrainConfig(kernels="triton"), gpu)
    monkeypatch.setattr("tasks.train.gradients.steps.has_triton", lambda: True)
    for kernels, expected in (("triton", True), ("auto", False), ("triton", True), ("torch", False)):
        set_kernels(TrainConfig(kernels=kernels), gpu)  # type: ignore[arg-type]
        assert backends._takes_triton == expected


def test_steps_multiply_in_tf32_and_validation_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, set[str]] = {"_step": set(), "validate": set()}
    for name in found:
        whole = getattr(GradientEngine, name)

        def noted(self: GradientEngine, *given: Any, name: str = name, whole: Any = whole) -> Any:
            found[name].add(torch.get_float32_matmul_precision())
            return whole(self, *given)

        monkeypatch.setattr(GradientEngine, name, noted)
    made = job(partition(tmp_path / "g", "link"), tmp_path / "work", "train.precision=tf32", "train.epochs=2")
    run_engine(make_engine(made))
    assert found == {"_step": {"high"}, "validate": {"highest"}}


def test_a_gpu_measures_larger_graphs_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=80 << 30))
    assert validation._whole_graph_bytes(torch.device("cuda", 0)) == 10 << 30
    assert validation._whole_graph_bytes(CPU) == 1 << 30


def test_ranks_share_a_gpu_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    set_devices: list[torch.device] = []
    for name, stand_in in {
        "is_available": lambda: True,
        "device_count": lambda: 2,
        "set_device": set_devices.append,
    }.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    with pytest.raises(RecipeError, match=r"train\.num_ranks is above the 2 GPU\(s\)"):
        choose_device("cuda", 2)
    assert [choose_device("cuda", rank, share=True).index for rank in range(5)] == [0, 1, 0, 1, 0]
    assert set_devices[-1] == torch.device("cuda", 0)


@pytest.mark.parametrize("share", [False, True])
def test_ranks_that_share_a_gpu_meet_over_gloo(monkeypatch: pytest.MonkeyPatch, share: bool) -> None:
    asked: list[Any] = []
    stand_in = SimpleNamespace(
        init_process_group=lambda kind, **options: asked.append((kind, sorted(options))),
        group=SimpleNamespace(WORLD=object()),
    )
    monkeypatch.setattr(collectives, "dist", stand_in)
    monkeypatch.setattr(collectives, "_left", [])
    with pytest.raises(ZeroDivisionError), joined(Ranks(0, 2, 0, 2), torch.device("cuda", 0), share_gpu=share):
        raise ZeroDivisionError
    assert asked == [("gloo", ["timeout"]) if share else ("cpu:gloo,cuda:nccl", ["device_id", "timeout"])]


def test_sparse_embeddings_learn_under_bfloat16(tmp_path: Path) -> None:
    overrides = (
        "train.embeddings=sparse",
        "train.loader=edge",
        "train.loader.batch_size=512",
        "train.precision=bfloat16",
    )
    made = make_engine(job(partition(tmp_path / "g", "link"), tmp_path / "work", *overrides))
    embedding = made.optimization.embedding
    before = embedding.weight.clone()
    run_engine(made)
    assert embedding.weight.dtype == torch.float32
    assert float((embedding.weight - before).abs().max()) > 1e-3
    losses = [line["train/loss"] for line in records(tmp_path / "work") if "train/loss" in line]
    assert losses[-1] < losses[0]


def test_the_rule_of_the_learning_rate_is_said() -> None:
    scaled = TrainConfig(learning_rate=0.01, lr_scaling="sqrt", schedule={"name": "cosine", "warmup_steps": 100})
    assert describe_rate(scaled, 4, 2000) == (
        "learning rate 0.02 (lr_scaling=sqrt, ranks: 4); 100 steps of warm-up, then cosine over 2,000 steps"
    )
