"""SimplE: an entity has one row as a head and one as a tail, a relation one for each direction.

score = (sum_i h^head_i r_i t^tail_i + sum_i t^head_i r'_i h^tail_i) / 2 (Kazemi and Poole, arXiv:1802.04868, section
4). The first half of an entity's row is that of heads, of a relation's row r; the second half that of tails, and r'.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from configs.registry import MODELS
from models.knowledge.base import EntityQueries, KnowledgeModel, Side


@MODELS.register("simple")
class SimplE(KnowledgeModel):
    """SimplE (arXiv:1802.04868): rows of heads and of tails."""

    @classmethod
    def queries(cls, config: Any, entities: Tensor, relations: Tensor, side: Side) -> EntityQueries:
        """The halves change places: as a tail is compared what as a head is known."""
        return EntityQueries(_swapped(entities) * _facing(relations, side) * 0.5)

    @classmethod
    def query_gradients(
        cls, config: Any, entities: Tensor, relations: Tensor, side: Side, vectors: Tensor, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Of a product: the other factor, its halves back in their places."""
        half = vectors * 0.5
        return _swapped(half * _facing(relations, side)), _facing(half * _swapped(entities), side)


def _swapped(rows: Tensor) -> Tensor:
    return rows.roll(rows.shape[1] // 2, 1)


def _facing(relations: Tensor, side: Side) -> Tensor:
    """Return (r', r) where a tail is asked for, whose second half is its row as a tail; (r, r') for heads."""
    return _swapped(relations) if side == "tail" else relations
