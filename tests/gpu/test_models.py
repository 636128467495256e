"""Every model on a GPU: the loss and the gradients of the CPU, and no waiting between the two."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from models.base import GraphModel
from models.block import Batch
from models.losses.chosen import loss_of
from tests.gpu.where import DEVICE, KERNELS, MARKS, computing_with, never_waiting
from tests.models.test_contract import LOADERS, NAMES, build

pytestmark = MARKS
_MORE: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("graphsage", "node"): [{"aggregator": "max"}, {"aggregator": "sum", "norm": "layer"}],
    ("deepgcn", "graph"): [{"virtual_node": True}],
    ("gin", "graph"): [{"virtual_node": True}],
}
"""Options beside the usual ones, by model and task."""
CASES = [
    (name, task, loader, options)
    for name in NAMES
    if name != "dgl"  # PyPI's DGL computes on CPUs
    for task, loader in LOADERS
    for options in [{}, *_MORE.get((name, task), [])]
]


def step(
    model: GraphModel, batch: Batch, kind: str, precision: torch.dtype = torch.float32
) -> tuple[float, dict[str, Tensor]]:
    """The loss and the gradients, on the model's device."""
    parameters, device = dict(model.named_parameters()), batch.target.device.type
    for context in (nullcontext(), never_waiting()):  # kernels are compiled, and transposes made, in the first
        with context:
            with torch.autocast(device, precision, enabled=precision != torch.float32):
                scores = model(batch)
            loss = loss_of(kind)(scores.float(), batch.target, batch.num_seeds)
            found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    named = zip(parameters, found, strict=True)
    return float(loss.detach()), {name: grad.cpu().double() for name, grad in named if grad is not None}


@KERNELS
@pytest.mark.parametrize(("name", "task", "loader", "options"), CASES)
def test_loss_and_gradients_are_the_cpus(
    tmp_path: Path, name: str, task: str, loader: str, options: dict[str, Any], kernels: str
) -> None:
    model, store, batches = build(tmp_path, name, task, loader, **options)
    batch, kind = batches.batch(np.arange(min(40, batches.num_seeds)), key=3), store.manifest.task_type
    expected, wanted = step(model, batch, kind)
    with computing_with(kernels):
        loss, found = step(model.to(DEVICE), batch.to(DEVICE), kind)
    assert loss == pytest.approx(expected, rel=1e-4)
    assert found.keys() == wanted.keys()
    whole = sum(float(grad.square().sum()) for grad in wanted.values()) ** 0.5
    for parameter, grad in wanted.items():
        error = float((found[parameter] - grad).norm())
        assert error < 1e-3 * float(grad.norm()) + 1e-5 * whole, parameter


@KERNELS
@pytest.mark.parametrize("precision", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "dgl"])
def test_halves_come_near(tmp_path: Path, name: str, precision: torch.dtype, kernels: str) -> None:
    model, store, batches = build(tmp_path, name, "node", "neighbor")
    batch, kind = batches.batch(np.arange(40), key=3), store.manifest.task_type
    expected, _ = step(model, batch, kind)
    half = precision if DEVICE.type == "cuda" else torch.bfloat16
    with computing_with(kernels):
        loss, _ = step(model.to(DEVICE), batch.to(DEVICE), kind, half)
    assert loss == pytest.approx(expected, rel=0.05)
