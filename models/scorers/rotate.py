"""RotatE: a relation turns each complex number of the head by an angle.

score = -sum_i |h_i e^(i r_i) - t_i| (Sun and others, arXiv:1902.10197, equation 3; the margin gamma is the loss's).
Angles begin uniform, entities uniform between -start and start, by default 14 / dim with complex numbers counted, what
the authors' code has for gamma = 12.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from configs.registry import MODELS
from models.kernels.dense.complex_products import complex_products
from models.knowledge.base import EntityQueries, KnowledgeModel, Side


@MODELS.register("rotate")
class RotatE(KnowledgeModel):
    """RotatE (arXiv:1902.10197): a relation turns complex numbers."""

    @classmethod
    def queries(cls, config: Any, entities: Tensor, relations: Tensor, side: Side) -> EntityQueries:
        """h e^(i r), or t e^(-i r)."""
        return EntityQueries(complex_products(entities, _turn(relations, side)))

    @classmethod
    def query_gradients(
        cls, config: Any, entities: Tensor, relations: Tensor, side: Side, vectors: Tensor, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Turned back; an angle moves a number at a right angle to itself."""
        turn = _turn(relations, side)
        real, imaginary = complex_products(entities, turn).chunk(2, 1)
        by_real, by_imaginary = vectors.chunk(2, 1)
        by_angle = by_imaginary * real - by_real * imaginary
        return complex_products(vectors, turn, conjugate=True), by_angle if side == "tail" else -by_angle

    @classmethod
    def start_entities(cls, config: Any, rows: Tensor, generator: torch.Generator) -> None:
        """Uniform, as the authors' code."""
        width = config.start or 28 / config.dim
        rows.uniform_(-width, width, generator=generator)

    @classmethod
    def start_relations(cls, config: Any, rows: Tensor, generator: torch.Generator) -> None:
        """All angles alike."""
        rows.uniform_(-math.pi, math.pi, generator=generator)


def _turn(angles: Tensor, side: Side) -> Tensor:
    sine = angles.sin()
    return torch.cat([angles.cos(), sine if side == "tail" else -sine], 1)
