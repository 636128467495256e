"""Scorers of triples and losses of their scores: against papers' formulas, and gradients against autograd."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid

from configs.registry import LOSSES, MODELS
from models.knowledge.base import KnowledgeModel, Side, made_queries
from models.losses.base import PairLoss, Targets

ALL_SCORERS = [name for name in MODELS.names() if getattr(MODELS.config_class(name), "family", "") == "knowledge"]
SIDES: tuple[Side, ...] = ("tail", "head")


def scorer(name: str, **options: Any) -> tuple[type[KnowledgeModel], Any]:
    return MODELS.get(name), MODELS.config({"name": name, "dim": 12, **options})


def rows(config: Any, count: int = 5, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    heads, tails = (torch.randn(count, config.dim, generator=generator, dtype=torch.float64) for _ in range(2))
    return heads, torch.randn(count, config.relation_width, generator=generator, dtype=torch.float64), tails


def compared(kind: str, queries: Any, entities: Tensor) -> Tensor:
    """Each query with its own entity, by plain torch."""
    moved = entities if queries.scale is None else queries.scale * entities
    if kind == "dot":
        return (queries.vectors * moved).sum(1)
    apart = queries.vectors - moved
    if kind == "complex":
        return -torch.hypot(*apart.chunk(2, 1)).sum(1)
    return -apart.norm(p=1 if kind == "l1" else 2, dim=1)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("name", ALL_SCORERS)
def test_gradients_are_those_of_autograd(name: str, side: Side) -> None:
    model, config = scorer(name)
    entities, relations, _ = rows(config)
    made = model.queries(config, entities, relations, side)
    vectors = torch.randn_like(made.vectors)
    scale = None if made.scale is None else torch.randn_like(made.scale)
    own = model.query_gradients(config, entities.clone(), relations.clone(), side, vectors.clone(), scale)
    plain = KnowledgeModel.query_gradients.__func__(model, config, entities, relations, side, vectors, scale)  # type: ignore[attr-defined]
    assert model.query_gradients.__func__ is not KnowledgeModel.query_gradients.__func__  # type: ignore[attr-defined]
    torch.testing.assert_close(own, plain)


def formula(name: str, h: Tensor, r: Tensor, t: Tensor) -> Tensor:
    """A triple's score as its paper has it."""
    if name in ("complex", "rotate"):
        h, t = (torch.complex(*x.chunk(2)) for x in (h, t))
    if name == "transe":
        return -(h + r - t).abs().sum()
    if name == "distmult":
        return (h * r * t).sum()
    if name == "complex":
        return (h * torch.complex(*r.chunk(2)) * t.conj()).sum().real
    if name == "simple":
        (h1, h2), (r1, r2), (t1, t2) = h.chunk(2), r.chunk(2), t.chunk(2)
        return ((h1 * r1 * t2).sum() + (t1 * r2 * h2).sum()) / 2
    if name == "rotate":
        return -(h * torch.polar(torch.ones_like(r), r) - t).abs().sum()
    if name == "rescal":
        return h @ r.view(len(h), -1) @ t
    if name == "pairre":
        return -(h * r.chunk(2)[0] - t * r.chunk(2)[1]).abs().sum()
    assert name == "quate"
    a, b, c, d = h.chunk(4)
    parts = r.view(4, -1)
    p, q, u, v = parts / parts.norm(dim=0)
    turned = [
        a * p - b * q - c * u - d * v,
        a * q + b * p + c * v - d * u,
        a * u - b * v + c * p + d * q,
        a * v + b * u - c * q + d * p,
    ]
    return (torch.cat(turned) * t).sum()


@pytest.mark.parametrize("name", ALL_SCORERS)
def test_scores_are_those_of_the_paper_from_both_sides(name: str) -> None:
    model, config = scorer(name)
    heads, relations, tails = rows(config)
    expected = torch.stack([formula(name, *triple) for triple in zip(heads, relations, tails, strict=True)])
    for side, given, others in (("tail", heads, tails), ("head", tails, heads)):
        scores = compared(config.similarity, model.queries(config, given, relations, side), others)
        torch.testing.assert_close(scores, expected)


def test_inverse_relations_have_rows_of_their_own() -> None:
    model, config = scorer("complex", inverse_relations=True)
    assert config.relation_rows(3) == 6
    table, entities = torch.randn(6, 12), torch.randn(2, 12)
    numbers = torch.tensor([0, 2])
    ahead = made_queries(model, config, entities, table, numbers, "tail").vectors
    back = made_queries(model, config, entities, table, numbers, "head").vectors
    torch.testing.assert_close(ahead, model.queries(config, entities, table[[0, 2]], "tail").vectors)
    torch.testing.assert_close(back, model.queries(config, entities, table[[3, 5]], "tail").vectors)


@pytest.mark.parametrize("penalty", ["l2", "n3"])
@pytest.mark.parametrize("name", ["complex", "distmult"])
def test_penalties_and_their_gradients(name: str, penalty: str) -> None:
    model, config = scorer(name, penalty=penalty, entity_penalty=0.1)
    x = torch.randn(4, 12, dtype=torch.float64, requires_grad=True)
    penalties, gradient = model.penalty(config, x.detach())
    moduli = torch.complex(*x.chunk(2, 1)).abs() if name == "complex" else x.abs()
    expected = (moduli ** (2 if penalty == "l2" else 3)).sum(1)
    torch.testing.assert_close(penalties, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected.sum(), x)[0])


@pytest.mark.parametrize("name", ALL_SCORERS)
def test_first_rows_are_drawn_by_seed_and_finite(name: str) -> None:
    model, config = scorer(name)
    drawn = []
    for seed in (1, 1, 2):
        entities, relations = torch.zeros(50, config.dim), torch.zeros(7, config.relation_width)
        generator = torch.Generator().manual_seed(seed)
        model.start_entities(config, entities, generator)
        model.start_relations(config, relations, generator)
        assert torch.isfinite(entities).all()
        assert relations.std() > 0
        drawn.append(entities)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"name": "complex", "dim": 7}, "multiple of 2"),
        ({"name": "quate", "dim": 6}, "multiple of 4"),
        ({"name": "distmult", "penalty": "n3"}, "entity_penalty"),
        ({"name": "distmult", "entity_penalty": 0.1}, "entity_penalty"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        MODELS.config(options)


DRAWN: list[dict[str, Any]] = [
    {"name": "softmax"},
    {"name": "softmax", "negative_weight": 12.5},
    {"name": "logistic"},
    {"name": "logistic", "margin": 3.0, "adversarial": 0.7, "negative_weight": 4.0},
    {"name": "margin", "margin": 0.8},
    {"name": "bpr"},
]

FOR_EACH = 7.5


def loss_of(options: dict[str, Any]) -> PairLoss:
    loss: PairLoss = LOSSES.create(LOSSES.config(options))
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
    if options["name"] == "bpr":
        return -logsigmoid(true[:, None] - drawn).mean()
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


@pytest.mark.parametrize("options", DRAWN, ids=str)
def test_an_entity_that_does_not_count_changes_nothing(options: dict[str, Any]) -> None:
    torch.manual_seed(1)
    true, drawn = torch.randn(3), torch.randn(3, 4)
    alone = loss_of(options).of_drawn(true.clone(), drawn.clone())
    beside = loss_of(options).of_drawn(true.clone(), torch.cat([drawn, torch.full((3, 1), -torch.inf)], 1))
    torch.testing.assert_close(tuple(alone), (*beside[:2], beside[2][:, :4]))
    assert not beside[2][:, 4].any()


@pytest.mark.parametrize("name", ["softmax", "margin", "bpr"])
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
