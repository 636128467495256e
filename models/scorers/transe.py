"""TransE: a relation is a step from head to tail.

score = -|h + r - t| (Bordes and others, Translating Embeddings for Modeling Multi-relational Data, NeurIPS 2013,
section 2). Rows begin uniform between -6 / sqrt(dim) and 6 / sqrt(dim), as in the paper's algorithm 1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from configs.registry import MODELS
from models.knowledge.base import EntityQueries, KnowledgeModel, Side


@MODELS.register("transe")
class TransE(KnowledgeModel):
    """TransE (NeurIPS 2013): a relation is a step from head to tail."""

    @classmethod
    def queries(cls, config: Any, entities: Tensor, relations: Tensor, side: Side) -> EntityQueries:
        """h + r, or t - r."""
        return EntityQueries(entities + relations if side == "tail" else entities - relations)

    @classmethod
    def query_gradients(
        cls, config: Any, entities: Tensor, relations: Tensor, side: Side, vectors: Tensor, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The queries' gradient itself."""
        return vectors, vectors if side == "tail" else -vectors

    @classmethod
    def start_entities(cls, config: Any, rows: Tensor, generator: torch.Generator) -> None:
        """Uniform, as the paper."""
        width = config.start or 6 / config.dim**0.5
        rows.uniform_(-width, width, generator=generator)
