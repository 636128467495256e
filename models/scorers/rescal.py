"""RESCAL: a relation is a matrix.

score = h^T R t (Nickel and others, A Three-Way Model for Collective Learning on Multi-Relational Data, ICML 2011).
Rows of entities begin normal of spread 0.1, matrices of spread 0.1 too; R[i, j] is at i * dim + j of a relation's row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from configs.registry import MODELS
from models.knowledge.base import EntityQueries, KnowledgeModel, Side


@MODELS.register("rescal")
class Rescal(KnowledgeModel):
    """RESCAL (ICML 2011): a relation is a matrix."""

    @classmethod
    def queries(cls, config: Any, entities: Tensor, relations: Tensor, side: Side) -> EntityQueries:
        """R^T h, or R t."""
        matrices = relations.view(-1, config.dim, config.dim)
        if side == "tail":
            return EntityQueries(torch.bmm(entities[:, None], matrices)[:, 0])
        return EntityQueries(torch.bmm(matrices, entities[:, :, None])[:, :, 0])

    @classmethod
    def query_gradients(
        cls, config: Any, entities: Tensor, relations: Tensor, side: Side, vectors: Tensor, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """By the matrix: head times tail, one of which is the entity and the other the gradient."""
        other: Side = "head" if side == "tail" else "tail"
        by_entities = cls.queries(config, vectors, relations, other).vectors
        head, tail = (entities, vectors) if side == "tail" else (vectors, entities)
        return by_entities, torch.bmm(head[:, :, None], tail[:, None]).view(relations.shape)
