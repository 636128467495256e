"""Steps over padded batches, which a CUDA graph can hold, learn what steps over the batches themselves learn."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.schema import Recipe
from models.layers.layer import BatchNorm
from tasks.train.gradients.engine import GradientEngine
from tests.train.device_trainings import make_device_engine as make_engine
from tests.train.in_process import make_job, own_settings, run_engine, stopped_at
from tests.train.test_equal_bits import partition
from tests.triton_device import DEVICE, MARKS_OF_TABLES

pytestmark = MARKS_OF_TABLES


def loader(**options: Any) -> dict[str, Any]:
    return {"name": "neighbor", "fanout": [3, 2], "batch_size": 40, **options}


def recipe(train: dict[str, Any] | None = None, **model: Any) -> Recipe:
    options = {"epochs": 2, "loader": loader(), "threads": 1, "sampling": "device", **(train or {})}
    return build_recipe(
        {
            "name": "whole",
            "dataset": {"name": "synthetic"},
            "model": {"name": "graphsage", "hidden_dim": 8, "num_layers": 2, "dropout": 0.0, **model},
            "train": options,
        }
    )


def train(made: Recipe, graph: Any, work: Path) -> tuple[GradientEngine, list[dict[str, float]]]:
    with own_settings():
        engine = make_engine(make_job(made, graph, work))
        run_engine(engine)
    lines = [json.loads(line) for line in (work / "metrics.jsonl").read_text().splitlines()]
    return engine, [line for line in lines if "train/loss" in line]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        # Before a batch norm a bias has a gradient of roundings, which Adam would make whole steps of.
        ({"norm": "batch"}, {"optimizer": "sgd"}),
        ({"norm": "layer", "aggregator": "sum", "residual": True}, {"clip_norm": 0.1}),
        ({"norm": "none"}, {"loader": loader(first_hop="sampled")}),
        ({"name": "gcn", "norm": "batch"}, {"optimizer": "sgd", "schedule": {"name": "cosine", "warmup_steps": 2}}),
        ({"norm": "batch", "num_layers": 3}, {"optimizer": "sgd", "loader": loader(fanout=[2, 2, 2])}),
    ],
)
def test_padding_changes_nothing_but_roundings(tmp_path: Path, model: dict[str, Any], options: dict[str, Any]) -> None:
    graph = partition(tmp_path / "graph", "node")
    found = [
        train(recipe({**options, "cuda_graph": whole}, **model), graph, tmp_path / str(whole))
        for whole in (False, True)
    ]
    (plain, expected), (whole, lines) = found
    for line, other in zip(lines, expected, strict=True):
        assert line["train/loss"] == pytest.approx(other["train/loss"], rel=1e-3)
        assert line["learning_rate"] == other["learning_rate"]
    assert whole.progress.run_totals[:2] == plain.progress.run_totals[:2]  # seeds and edges
    assert whole.progress.run_totals[1] > 0
    first = make_engine(make_job(recipe(options, **model), graph, tmp_path / "first")).model.state_dict()
    for name, value in plain.model.state_dict().items():
        moved = float((value - first[name]).float().norm())
        assert float((whole.model.state_dict()[name] - value).float().norm()) <= 0.02 * moved + 1e-5, name


def test_the_interrupted_training_goes_on(tmp_path: Path) -> None:
    """From the checkpoint of an epoch, with the same numbers."""
    graph = partition(tmp_path / "graph", "node")
    once, _ = train(recipe({"cuda_graph": True, "epochs": 3}), graph, tmp_path / "once")
    job = make_job(recipe({"cuda_graph": True, "epochs": 3}), graph, tmp_path / "twice")
    with own_settings():
        first = make_engine(job)
        with stopped_at(2 * first.steps_a_round):
            run_engine(first)
        second = make_engine(job)
        assert second.progress.epoch == 2
        run_engine(second)
    for name, value in once.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name
    assert second.progress.run_totals[:2] == once.progress.run_totals[:2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("there", [1, 2, 9, 13])
def test_batch_norm_counts_what_is_there(there: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    padded, plain = BatchNorm(5), BatchNorm(5)
    for norm in (padded, plain):
        torch.nn.init.normal_(norm.weight, generator=torch.Generator().manual_seed(1))
    x = torch.randn(13, 5).to(dtype)
    rows, own = x.clone().requires_grad_(), x[:there].clone().requires_grad_()
    for _ in range(2):
        found, expected = padded(rows, torch.tensor([there])), plain(own)
    slack = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found[:there], expected, rtol=slack, atol=slack)
    assert found.isfinite().all()
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(padded.state_dict()[name], value, rtol=slack, atol=slack)
    change = torch.zeros_like(found)
    change[:there] = torch.randn(there, 5).to(dtype)
    found.backward(change)
    expected.backward(change[:there])
    assert rows.grad is not None
    assert own.grad is not None
    torch.testing.assert_close(rows.grad[:there], own.grad, rtol=slack, atol=10 * slack)
    assert not rows.grad[there:].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sampling": "cpu"}, r"cuda_graph=true needs sampling=device; set that"),
        ({"accumulate_steps": 2, "num_ranks": 2}, r"needs accumulate_steps=1, num_ranks=1 and num_machines=1;"),
        ({"precision": "float16"}, r"needs precision=float32, tf32 or bfloat16"),
    ],
)
def test_what_no_graph_holds_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        recipe({"cuda_graph": True, **options})


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"aggregator": "max"}, r"model\.name=graphsage with these options computes over whole batches only"),
        ({"name": "gat"}, r"model\.name=gat with these options"),
        ({"feed_forward": 1}, r"model\.norm=batch counts all rows"),
    ],
)
def test_models_that_count_all_rows_are_refused(tmp_path: Path, model: dict[str, Any], message: str) -> None:
    graph = partition(tmp_path / "graph", "node")
    with own_settings(), pytest.raises(RecipeError, match=f"{message}.*set train.cuda_graph=false"):
        make_engine(make_job(recipe({"cuda_graph": True}, **model), graph, tmp_path / "work"))


class FakeCuda:
    """Notes in which order torch.cuda would be asked for what."""

    def __init__(self, notes: list[Any]) -> None:
        self.notes = notes

    def Stream(self, device: Any) -> FakeStream:  # noqa: N802
        return FakeStream(self.notes, "side")

    def current_stream(self, device: Any) -> FakeStream:
        return FakeStream(self.notes, "current")

    @contextmanager
    def stream(self, stream: FakeStream) -> Any:
        self.notes.append(f"on {stream.name}")
        yield
        self.notes.append("off")

    def CUDAGraph(self) -> FakeCuda:  # noqa: N802
        return self

    @contextmanager
    def graph(self, graph: FakeCuda, stream: FakeStream, capture_error_mode: str) -> Any:
        self.notes.append(f"record on {stream.name}, {capture_error_mode}")
        yield
        self.notes.append("recorded")

    def replay(self) -> None:
        self.notes.append("replay")


class FakeStream:
    def __init__(self, notes: list[Any], name: str) -> None:
        self.notes, self.name = notes, name

    def wait_stream(self, other: FakeStream) -> None:
        self.notes.append(f"{self.name} waits for {other.name}")


@pytest.mark.skipif(DEVICE.type == "cuda", reason="there the graph itself is tested, in tests/gpu")
def test_the_fourth_step_is_recorded_and_all_later_ones_replayed(tmp_path: Path) -> None:
    from tasks.train.gradients.whole_step import WholeStep

    graph, notes = partition(tmp_path / "graph", "node"), []  # type: ignore[var-annotated]
    with own_settings():
        engine = make_engine(make_job(recipe(), graph, tmp_path / "work"))
        whole = WholeStep(engine.model, engine.batches.loader, engine.optimization, FakeCuda(notes))
        whole.side = FakeCuda(notes).Stream(None)
        launched = whole._compute

        def compute() -> torch.Tensor:
            notes.append("compute")
            return launched()

        whole._compute = compute  # type: ignore[method-assign]
        losses = [whole.take(*engine.batches.request(number), number) for number in range(6)]
    alone = ["side waits for current", "on side", "compute", "off", "current waits for side"]
    record = ["record on side, thread_local", "compute", "recorded"]
    assert notes == [*alone * 3, *record, *["replay"] * 3]
    assert len({loss.data_ptr() for loss in losses[3:]}) == 3  # none is written over by a later one
