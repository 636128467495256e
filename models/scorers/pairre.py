"""PairRE: a relation scales heads by one row and tails by another.

score = -|h r^h - t r^t|, the sum of absolute values, entities of length 1 (Chao and others, arXiv:2011.03798, equation
1). The length is kept by giving each row that moved the length 1 again, where the authors divide when they score. The
first half of a relation's row is r^h. Entities begin uniform and of length 1, scales uniform between 0 and 2 start, by
default 2.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from configs.registry import MODELS
from models.knowledge.base import EntityQueries, KnowledgeModel, Side


@MODELS.register("pairre")
class PairRE(KnowledgeModel):
    """PairRE (arXiv:2011.03798): a relation scales head and tail."""

    unit_entities: ClassVar[bool] = True

    @classmethod
    def queries(cls, config: Any, entities: Tensor, relations: Tensor, side: Side) -> EntityQueries:
        """The known end scaled, and what the other one is scaled by."""
        given_scale, asked = _scales(relations, side)
        return EntityQueries(entities * given_scale, asked.contiguous())

    @classmethod
    def query_gradients(
        cls, config: Any, entities: Tensor, relations: Tensor, side: Side, vectors: Tensor, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Of a product: the other factor; the scale's is its own."""
        assert scale is not None
        given_scale, _ = _scales(relations, side)
        halves = [vectors * entities, scale]
        return vectors * given_scale, torch.cat(halves if side == "tail" else halves[::-1], 1)

    @classmethod
    def start_entities(cls, config: Any, rows: Tensor, generator: torch.Generator) -> None:
        """Uniform, then of length 1."""
        rows.uniform_(-1, 1, generator=generator)
        rows /= rows.norm(dim=1, keepdim=True).clamp(min=1e-12)

    @classmethod
    def start_relations(cls, config: Any, rows: Tensor, generator: torch.Generator) -> None:
        """Positive scales."""
        rows.uniform_(0, 2 * (config.start or 1.0), generator=generator)


def _scales(relations: Tensor, side: Side) -> tuple[Tensor, Tensor]:
    """Return the scales of the known end and of the one that is asked for."""
    of_heads, of_tails = relations.chunk(2, 1)
    return (of_heads, of_tails) if side == "tail" else (of_tails, of_heads)
