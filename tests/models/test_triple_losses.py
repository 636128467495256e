"""Losses of triples against plain formulas, and their gradients against autograd."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid

from configs.registry import TRIPLE_LOSSES
from models.triple_losses.base import Targets, TripleLoss

DRAWN: list[dict[str, Any]] = [
    {"name": "softmax"},
    {"name": "softmax", "negative_weight": 12.5},
    {"name": "logistic"},
    {"name": "logistic", "margin": 3.0, "adversarial": 0.7, "negative_weight": 4.0},
    {"name": "margin", "margin": 0.8},
]

FOR_EACH = 7.5


def loss_of(options: dict[str, Any]) -> TripleLoss:
    loss: TripleLoss = TRIPLE_LOSSES.create(TRIPLE_LOSSES.config(options))
    loss.entities_a_drawn = FOR_EACH
    return loss


def plain(options: dict[str, Any], true: Tensor, drawn: Tensor) -> Tensor:
    """The loss as papers have it, for autograd."""
    if options["name"] == "softmax":
        weight = options.get("negative_weight", "all")
        weighted = drawn + math.log(FOR_EACH if weight == "all" else weight)
        return cross_entropy(torch.cat([true[:, None], weighted], 1), torch.zeros(len(true), dtype=torch.int64))
    if options["name"] == "margin":
        return (options["margin"] - true[:, None] + drawn).clamp(min=0).mean()
    margin, alpha = options.get("margin", 0.0), options.get("adversarial", 0.0)
    weight = torch.softmax(alpha * drawn, 1).detach() * options.get("negative_weight", 1.0)
    return -(logsigmoid(true + margin) + (weight * logsigmoid(-drawn - margin)).sum(1)).mean() / 2


@pytest.mark.parametrize("options", DRAWN, ids=str)
def test_against_drawn_entities(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    true = torch.randn(7, dtype=torch.float64, requires_grad=True)
    drawn = torch.randn(7, 5, dtype=torch.float64, requires_grad=True)
    expected = plain(options, true, drawn)
    gradients = torch.autograd.grad(expected, [true, drawn])
    made = loss_of(options).of_drawn(true.detach().clone(), drawn.detach().clone())
    torch.testing.assert_close(tuple(made), (expected, *gradients))


@pytest.mark.parametrize("options", [options for options in DRAWN if options["name"] != "margin"], ids=str)
def test_an_entity_that_does_not_count_changes_nothing(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    true, drawn = torch.randn(3), torch.randn(3, 4)
    alone = loss_of(options).of_drawn(true.clone(), drawn.clone())
    beside = loss_of(options).of_drawn(true.clone(), torch.cat([drawn, torch.full((3, 1), -torch.inf)], 1))
    torch.testing.assert_close(tuple(alone), (*beside[:2], beside[2][:, :4]))
    assert not beside[2][:, 4].any()


@pytest.mark.parametrize("name", [config["name"] for config in DRAWN[:2]] + ["margin"])
def test_all_drawn_are_the_true_one(name: str) -> None:
    loss, by_true, by_drawn = loss_of({"name": name}).of_drawn(torch.zeros(2), torch.full((2, 3), -torch.inf))
    assert torch.isfinite(loss)
    assert torch.isfinite(by_true).all()
    assert not by_drawn.any()


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("name", ["softmax", "logistic"])
def test_against_all_entities(name: str, smoothing: float) -> None:
    torch.manual_seed(2)
    scores = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
    rows, columns = torch.tensor([0, 0, 1, 2, 2, 2, 3]), torch.tensor([0, 3, 5, 8, 1, 2, 4])
    truth = torch.zeros(4, 9, dtype=torch.float64)
    truth[rows, columns] = 1
    if name == "softmax":
        target = truth / truth.sum(1, keepdim=True) * (1 - smoothing) + smoothing / 9
        wanted = cross_entropy(scores, target)
    else:
        wanted = binary_cross_entropy_with_logits(scores, truth * (1 - smoothing) + smoothing / 9)
    gradient = torch.autograd.grad(wanted, scores)[0]
    targets = Targets(rows, columns, smoothing)
    loss, by_scores = loss_of({"name": name}).of_all(scores.detach().clone(), targets)
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(by_scores, gradient)
