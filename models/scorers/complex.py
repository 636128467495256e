"""ComplEx: DistMult with complex numbers, whose conjugate tells head and tail apart.

score = Re(sum_i h_i r_i conj(t_i)) (Trouillon and others, arXiv:1606.06357, equation 9). The first half of a row are
real parts, the second half imaginary ones; the real part of a product with a conjugate is the dot product of such rows.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from configs.registry import MODELS
from models.kernels.dense.complex_products import complex_products
from models.knowledge.base import EntityQueries, KnowledgeModel, Side


@MODELS.register("complex")
class ComplEx(KnowledgeModel):
    """ComplEx (arXiv:1606.06357): DistMult with complex numbers."""

    @classmethod
    def queries(cls, config: Any, entities: Tensor, relations: Tensor, side: Side) -> EntityQueries:
        """h r, or t conj(r)."""
        return EntityQueries(complex_products(entities, relations, conjugate=side == "head"))

    @classmethod
    def query_gradients(
        cls, config: Any, entities: Tensor, relations: Tensor, side: Side, vectors: Tensor, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Of a product: the conjugate of the other factor."""
        by_entities = complex_products(vectors, relations, conjugate=side == "tail")
        if side == "tail":
            return by_entities, complex_products(vectors, entities, conjugate=True)
        return by_entities, complex_products(entities, vectors, conjugate=True)
