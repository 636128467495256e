"""Steps that are replayed from a CUDA graph are those that are launched one by one, to the last bit."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from models.kernels.backends import has_triton
from tasks.train.gradients.engine import GradientEngine
from tasks.train.strategies.base import Ranks
from tests.gpu.where import DEVICE, HAS_GPU, MARKS, never_waiting
from tests.train.in_process import make_job, own_settings
from tests.train.test_equal_bits import partition

pytestmark = [*MARKS, pytest.mark.skipif(not (HAS_GPU and has_triton()), reason="needs a GPU and Triton")]
STEPS = 12


def run(graph: Any, work: Path, steps_before: int, **options: Any) -> tuple[torch.Tensor, dict[str, torch.Tensor], int]:
    from tasks.train.gradients import whole_step
    from tests.train.test_whole_step import recipe

    model = {"dropout": 0.5, "norm": options.pop("norm", "batch"), "hidden_dim": 64}
    train = {"sampling": "device", "cuda_graph": True, "clip_norm": 1.0, "device": "cuda", **options}
    with own_settings(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_step, "_STEPS_BEFORE", steps_before)
        engine = GradientEngine(make_job(recipe(train, **model), graph, work), Ranks(), DEVICE)
        engine.model.train()
        whole = engine.whole
        assert whole is not None
        losses = []
        for number in range(STEPS):
            with never_waiting() if number > steps_before + 1 else nullcontext():
                losses.append(whole.take(*engine.batches.request(number), number))
                engine.optimization.scheduler.step()
        assert (whole.graph is not None) == (steps_before < STEPS)
        return torch.stack(losses).cpu(), engine.model.state_dict(), int(whole.edges)


@pytest.mark.parametrize(
    "options",
    [{}, {"precision": "bfloat16"}, {"optimizer": "sgd", "norm": "layer"}, {"optimizer": "adamw", "norm": "none"}],
)
def test_replayed_steps_are_the_same(tmp_path: Path, options: dict[str, Any]) -> None:
    graph = partition(tmp_path / "graph", "node")
    losses, weights, edges = run(graph, tmp_path / "replayed", 3, **options)
    expected, others, other_edges = run(graph, tmp_path / "launched", 10**9, **options)
    assert torch.equal(losses, expected)
    assert edges == other_edges
    for name, value in others.items():
        assert torch.equal(weights[name], value), name
