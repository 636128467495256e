"""Training triples that support a triple: cosines of gradients, against small steps on the tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from configs.registry import MODELS
from models.facts import GraphFacts
from models.kernels.similarity.rows import plain_pairs
from models.knowledge.base import KnowledgeModel, made_queries
from tasks.explain.triples import similarities

N, R = 9, 3


def model_of(**options: Any) -> KnowledgeModel:
    facts = GraphFacts(task="triple", out_dim=1, num_nodes=N, num_relations=R)
    model: KnowledgeModel = MODELS.create(MODELS.config({"dim": 12, **options}), facts)
    torch.manual_seed(0)
    assert model.table is not None
    model.table.data.copy_(torch.randn(model.table.shape))
    model.relations.copy_(torch.randn(model.relations.shape))
    return model


def score(model: KnowledgeModel, entities: torch.Tensor, relations: torch.Tensor, triple: np.ndarray) -> torch.Tensor:
    head, relation, tail = triple.tolist()
    number = torch.tensor([relation])
    made = made_queries(type(model), model.config, entities[[head]], relations, number, "tail")
    return plain_pairs(model.config.similarity, made.vectors, entities[[tail]], made.scale)[0]


@pytest.mark.parametrize(
    "options",
    [
        {"name": "complex"},
        {"name": "transe", "norm": "l2"},
        {"name": "rotate"},
        {"name": "pairre"},
        {"name": "complex", "inverse_relations": True},
    ],
    ids=lambda one: "-".join(map(str, one.values())),
)
def test_cosines_are_those_of_gradients_by_whole_tables(options: dict[str, Any]) -> None:
    model = model_of(**options)
    assert model.table is not None
    tables = [table.detach().double().requires_grad_() for table in (model.table, model.relations)]
    asked = np.array([2, 1, 5])
    triples = np.array([[2, 1, 5], [2, 0, 4], [5, 1, 2], [7, 1, 5], [5, 2, 0], [3, 2, 2], [1, 0, 8]])

    def gradient(triple: np.ndarray) -> torch.Tensor:
        parts = torch.autograd.grad(score(model, *tables, triple), tables, allow_unused=True)
        return torch.cat([part.flatten() for part in parts if part is not None])

    own, cosines = similarities(model, asked, triples)
    np.testing.assert_allclose(own, score(model, *tables, asked).item(), rtol=1e-6)
    expected = [torch.cosine_similarity(gradient(asked), gradient(one), dim=0).item() for one in triples]
    np.testing.assert_allclose(cosines, expected, atol=1e-9)
    np.testing.assert_allclose([cosines[0], cosines[-1]], [1, 0], atol=1e-9)
