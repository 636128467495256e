"""Scorers that are distances: TransE, RotatE and PairRE."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import torch
from torch import Tensor

from configs.registry import MODELS
from models.kernels.dense.complex_products import complex_products
from models.knowledge.base import EntityQueries, KnowledgeModel, Side


@MODELS.register("transe")
class TransE(KnowledgeModel):
    """TransE (NeurIPS 2013): a relation is a step from head to tail.

    score = -|h + r - t| (Bordes and others, Translating Embeddings for Modeling Multi-relational Data, section 2). Rows
    begin uniform between -6 / sqrt(dim) and 6 / sqrt(dim), as in the paper's algorithm 1.
    """

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


@MODELS.register("rotate")
class RotatE(KnowledgeModel):
    """RotatE (arXiv:1902.10197): a relation turns complex numbers.

    score = -sum_i |h_i e^(i r_i) - t_i| (Sun and others, equation 3; the margin gamma is the loss's). Angles begin
    uniform, entities uniform between -start and start, by default 14 / dim with complex numbers counted, what the
    authors' code has for gamma = 12.
    """

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


@MODELS.register("pairre")
class PairRE(KnowledgeModel):
    """PairRE (arXiv:2011.03798): a relation scales head and tail.

    score = -|h r^h - t r^t|, the sum of absolute values, entities of length 1 (Chao and others, equation 1). The length
    is kept by giving each row that moved the length 1 again, where the authors divide when they score. The first half
    of a relation's row is r^h. Entities begin uniform and of length 1, scales uniform from 0 to 2 start, by default 2.
    """

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
    of_heads, of_tails = relations.chunk(2, 1)
    return (of_heads, of_tails) if side == "tail" else (of_tails, of_heads)
