"""How layers combine: norm, ReLU and residual connections, by their formulas."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, Block, Inputs
from models.facts import GraphFacts
from models.layers.layer import Activation, DropoutFirst


def batch_of(num_nodes: int, dim: int) -> Batch:
    indptr = torch.arange(0, 2 * num_nodes + 1, 2)
    indices = torch.arange(2 * num_nodes) * 5 % num_nodes
    return Batch(
        [Block(indptr, indices.to(torch.int32), num_nodes)],
        Inputs(torch.arange(num_nodes), torch.randn(num_nodes, dim)),
        torch.empty(0),
        0,
    )


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("task", ["node", "link", "graph"])
def test_the_stack_is_its_formula(task: str, residual: bool) -> None:
    torch.manual_seed(0)
    facts = GraphFacts(task, 1, 9, feature_dim=3)  # type: ignore[arg-type]
    options = {"residual": residual, "norm": "layer", "hidden_dim": 6, "num_layers": 3}
    model: GraphModel = MODELS.create(MODELS.config({"name": "graphsage", **options}), facts).eval()
    batch = batch_of(9, 3)
    x = batch.inputs.feat
    for number, layer in enumerate(model.layers):
        each: Any = layer
        last = number == 2
        y = each.conv(batch.blocks[0], x)
        if not (last and task == "link"):
            assert isinstance(each.norm, torch.nn.LayerNorm)
            y = each.norm(y)
        if not last or task == "node":
            y = y.clamp(min=0)
        if residual:
            y = y + (x @ each.shortcut.weight.T if number == 0 else x)
        x = y
    torch.testing.assert_close(model.represent(batch), x)


def test_dropout_acts_in_training_only() -> None:
    torch.manual_seed(0)
    config = MODELS.config({"name": "gcn", "hidden_dim": 64, "num_layers": 1, "dropout": 0.75, "norm": "none"})
    model: GraphModel = MODELS.create(config, GraphFacts("node", 2, 9, feature_dim=3))
    batch = batch_of(9, 3)
    kept = model.eval().represent(batch)
    dropped = model.train().represent(batch)
    alive = dropped != 0
    torch.testing.assert_close(dropped[alive], 4 * kept[alive])
    assert 0.15 < alive.float().sum() / (kept != 0).float().sum() < 0.35


@pytest.mark.parametrize("kind", ["relu", "elu", "gelu"])
def test_dropout_stands_behind_the_activation_or_before_it(kind: str) -> None:
    x = torch.ones(40, 50)
    function = {"relu": torch.relu, "elu": torch.nn.functional.elu, "gelu": torch.nn.functional.gelu}[kind]
    for module, kept in ((Activation(kind, 0.5), 2 * function(x)), (DropoutFirst(kind, 0.5), function(2 * x))):
        y = module.train()(x)
        torch.testing.assert_close(y, torch.where(y == 0, 0, kept))
        assert 0.4 < (y == 0).float().mean() < 0.6
        torch.testing.assert_close(module.eval()(-x), function(-x))
