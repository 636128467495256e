"""GATNE-T's vectors and scores against the formula, row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from configs.registry import MODELS
from models.facts import GraphFacts
from models.vectors.gatne import Gatne, RelationMixing


def plain(mixing: RelationMixing, base: torch.Tensor, lent: torch.Tensor, r: int) -> torch.Tensor:
    """The vector of one node in relation r: v = b + M_r^T U a_r, at length 1."""
    scores = []
    for q in range(len(lent)):
        hidden = torch.stack([torch.tanh((lent[q] * column).sum()) for column in mixing.attention[r].T])
        scores.append((hidden * mixing.query[r]).sum())
    weights = torch.stack([score.exp() for score in scores])
    mixed = sum(weight * row for weight, row in zip(weights / weights.sum(), lent, strict=True))
    vector = base + sum(number * row for number, row in zip(mixed, mixing.transform[r], strict=True))
    return vector / (vector * vector).sum().sqrt()


@pytest.mark.parametrize(("counts", "sizes"), [((3, 0, 5), (7, 3, 5)), ((1,), (2, 1, 1)), ((4, 2), (129, 10, 20))])
def test_vectors_and_gradients_are_those_of_the_formula(counts: tuple[int, ...], sizes: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    mixing = RelationMixing(len(counts), *sizes, seed=3).double()
    rows = sum(counts)
    base = torch.randn(rows, sizes[0], generator=generator, dtype=torch.float64, requires_grad=True)
    lent = torch.randn(rows, len(counts), sizes[1], generator=generator, dtype=torch.float64, requires_grad=True)
    slope = torch.randn(rows, sizes[0], generator=generator, dtype=torch.float64)
    wanted = [base, lent, *mixing.parameters()]
    found = mixing(base, lent, np.append(0, np.cumsum(counts)).tolist())
    relation = np.repeat(np.arange(len(counts)), counts).tolist()
    expected = torch.stack([plain(mixing, base[i], lent[i], relation[i]) for i in range(rows)])
    torch.testing.assert_close(found, expected)
    for one, other in zip(
        torch.autograd.grad(found, wanted, slope), torch.autograd.grad(expected, wanted, slope), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_a_pair_is_scored_in_its_relation() -> None:
    facts = GraphFacts(task="link", out_dim=1, num_nodes=6, num_relations=3)
    model = MODELS.create(MODELS.config({"name": "gatne", "dim": 5}), facts)
    assert isinstance(model, Gatne)
    assert model.table.shape == (6, 15)
    relation = torch.tensor([2, 0, 1, 2])
    source, target = model.table[[0, 1, 2, 3]], model.table[[5, 5, 1, 3]]
    expected = [
        torch.nn.functional.cosine_similarity(a[5 * r : 5 * r + 5], b[5 * r : 5 * r + 5], dim=0)
        for a, b, r in zip(source, target, relation.tolist(), strict=True)
    ]
    torch.testing.assert_close(model.score(source, target, relation), torch.stack(expected))
