"""The MLP: blind to edges, and what group dropout takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from configs.errors import RecipeError
from configs.registry import MODELS
from models.base import GraphModel
from models.block import Batch, Block, Inputs
from models.facts import GraphFacts
from models.mlp import GroupDropout

N, WIDTH = 12, 5


def make(facts: dict[str, Any] | None = None, **options: Any) -> GraphModel:
    torch.manual_seed(0)
    values = {"task": "node", "out_dim": 3, "num_nodes": N, "feature_dim": WIDTH, **(facts or {})}
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


def test_groups_are_dropped_whole_and_the_first_stays() -> None:
    torch.manual_seed(0)
    drop, x = GroupDropout((2, 1, 3), 0.3), torch.rand(4000, 6) + 1
    y = drop(x)
    stayed = y != 0
    assert (y[stayed] == x[stayed]).all(), "what stays is not scaled"
    assert stayed[:, :2].all()
    assert (stayed[:, 3:] == stayed[:, 3:4]).all()
    shares = stayed[:, [2, 3]].float().mean(0)
    torch.testing.assert_close(shares, torch.full((2,), 0.7), atol=0.03, rtol=0)
    assert (stayed[:, 2] != stayed[:, 3]).any(), "groups are drawn apart"
    assert drop.eval()(x) is x


def test_the_model_drops_groups_while_it_trains() -> None:
    model = make(groups=[2, 3], group_dropout=0.9, dropout=0.0, norm="none")
    x = torch.randn(N, WIDTH)
    scores = [model(batch([0] * N, x)) for _ in range(2)]
    assert (scores[0] != scores[1]).any()
    model.eval()
    torch.testing.assert_close(model(batch([0] * N, x)), model(batch([0] * N, x)))


@pytest.mark.parametrize(
    ("facts", "options", "said"),
    [
        ({}, {"groups": [2, 3]}, "need each other"),
        ({}, {"group_dropout": 0.2}, "need each other"),
        ({}, {"groups": [2, 2], "group_dropout": 0.2}, "add up to 4 columns and the graph has 5"),
        ({"categories": (4,)}, {"groups": [2, 3], "group_dropout": 0.2}, "beside categories"),
        ({}, {"groups": [2, 3], "group_dropout": 0.2, "norm_first": True}, "norm_first; remove one"),
        ({}, {"label_reuse": True}, "label_reuse does nothing in mlp"),
    ],
)
def test_refusals(facts: dict[str, Any], options: dict[str, Any], said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        make(facts, **options)
