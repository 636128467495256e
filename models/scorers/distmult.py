"""DistMult: a product of three rows.

score = sum_i h_i r_i t_i (Yang and others, arXiv:1412.6575, equation 5 with a diagonal matrix).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from configs.registry import MODELS
from models.knowledge.base import EntityQueries, KnowledgeModel, Side


@MODELS.register("distmult")
class DistMult(KnowledgeModel):
    """DistMult (arXiv:1412.6575): a product of three rows."""

    @classmethod
    def queries(cls, config: Any, entities: Tensor, relations: Tensor, side: Side) -> EntityQueries:
        """h r, or t r."""
        return EntityQueries(entities * relations)

    @classmethod
    def query_gradients(
        cls, config: Any, entities: Tensor, relations: Tensor, side: Side, vectors: Tensor, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Of a product: the other factor."""
        return vectors * relations, vectors * entities
