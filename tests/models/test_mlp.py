"""The MLP: blind to edges."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, Block, Inputs
from models.facts import GraphFacts

N, WIDTH = 12, 5


def make(**options: Any) -> GraphModel:
    torch.manual_seed(0)
    values = {"task": "node", "out_dim": 3, "num_nodes": N, "feature_dim": WIDTH}
    config = MODELS.config({"name": "mlp", "hidden_dim": 8, "num_layers": 2, **options})
    model: GraphModel = MODELS.create(config, GraphFacts(**values))
    return model


def batch(indices: list[int], x: torch.Tensor) -> Batch:
    indptr = torch.linspace(0, len(indices), N + 1).long()
    block = Block(indptr, torch.tensor(indices, dtype=torch.int32), N)
    return Batch([block], Inputs(torch.arange(N), x), torch.zeros(N), N)


def test_edges_play_no_part() -> None:
    model, x = make().eval(), torch.randn(N, WIDTH)
    edges = torch.arange(2 * N) % N
    torch.testing.assert_close(model(batch(edges.tolist(), x)), model(batch(edges.flip(0).tolist(), x)))
    changed = x.clone()
    changed[3] += 1
    moved = (model(batch(edges.tolist(), x)) != model(batch(edges.tolist(), changed))).any(1)
    assert moved.nonzero().flatten().tolist() == [3]


def test_an_option_that_does_nothing_is_refused() -> None:
    with pytest.raises(RecipeError, match="label_reuse does nothing in mlp"):
        make(label_reuse=True)
