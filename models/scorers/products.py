"""Scorers that are products: DistMult, ComplEx, SimplE, QuatE and RESCAL."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from configs.registry import MODELS
from models.kernels.dense.complex_products import complex_products
from models.knowledge.base import EntityQueries, KnowledgeModel, Side


@MODELS.register("distmult")
class DistMult(KnowledgeModel):
    """DistMult (arXiv:1412.6575): a product of three rows.

    score = sum_i h_i r_i t_i (Yang and others, equation 5 with a diagonal matrix).
    """

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


@MODELS.register("complex")
class ComplEx(KnowledgeModel):
    """ComplEx (arXiv:1606.06357): DistMult with complex numbers.

    score = Re(sum_i h_i r_i conj(t_i)) (Trouillon and others, equation 9): the conjugate tells head and tail apart. The
    first half of a row are real parts, the second half imaginary ones; the real part of a product with a conjugate is
    the dot product of such rows.
    """

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


@MODELS.register("simple")
class SimplE(KnowledgeModel):
    """SimplE (arXiv:1802.04868): rows of heads and of tails.

    score = (sum_i h^head_i r_i t^tail_i + sum_i t^head_i r'_i h^tail_i) / 2 (Kazemi and Poole, section 4). The first
    half of an entity's row is that of heads, of a relation's row r; the second half that of tails, and r'.
    """

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


_TINY = 1e-12


@MODELS.register("quate")
class QuatE(KnowledgeModel):
    """QuatE (arXiv:1904.10281): a relation turns quaternions.

    score = (h x r / |r|) . t with Hamilton's product, |r| of each quaternion (Zhang and others, equations 5 to 7). A
    row has the four parts of its quaternions one after the other, each a quarter. Rows begin as by Glorot and Bengio:
    uniform between -sqrt(6 / dim) and that.
    """

    @classmethod
    def queries(cls, config: Any, entities: Tensor, relations: Tensor, side: Side) -> EntityQueries:
        """h x r, or t x conj(r): turned there, or back."""
        unit, _ = _unit(relations)
        return EntityQueries(_product(entities, unit if side == "tail" else _conjugate(unit)))

    @classmethod
    def query_gradients(
        cls, config: Any, entities: Tensor, relations: Tensor, side: Side, vectors: Tensor, scale: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Of q = e x u: by e q x conj(u), by u conj(e) x q; then through the length of r."""
        unit, length = _unit(relations)
        turn = unit if side == "tail" else _conjugate(unit)
        by_entities = _product(vectors, _conjugate(turn))
        by_unit = _product(_conjugate(entities), vectors)
        if side == "head":
            by_unit = _conjugate(by_unit)
        along = (_parts(by_unit) * _parts(unit)).sum(1, keepdim=True)
        by_relations = (_parts(by_unit) - along * _parts(unit)) / length
        return by_entities, by_relations.reshape(relations.shape)

    @classmethod
    def start_entities(cls, config: Any, rows: Tensor, generator: torch.Generator) -> None:
        """Uniform, as Glorot and Bengio."""
        width = config.start or (6 / config.dim) ** 0.5
        rows.uniform_(-width, width, generator=generator)


def _parts(rows: Tensor) -> Tensor:
    """Return (n, 4, d): real, i, j, k."""
    return rows.view(len(rows), 4, -1)


def _unit(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return quaternions of length 1, (n, 4 d), and the lengths, (n, 1, d)."""
    parts = _parts(rows)
    length = parts.norm(dim=1, keepdim=True).clamp(min=_TINY)
    return (parts / length).reshape(rows.shape), length


def _conjugate(rows: Tensor) -> Tensor:
    turned = -rows
    turned[:, : rows.shape[1] // 4] = rows[:, : rows.shape[1] // 4]
    return turned


def _product(p: Tensor, q: Tensor) -> Tensor:
    a, b, c, d = p.chunk(4, 1)
    e, f, g, h = q.chunk(4, 1)
    return torch.cat(
        [
            a * e - b * f - c * g - d * h,
            a * f + b * e + c * h - d * g,
            a * g - b * h + c * e + d * f,
            a * h + b * g - c * f + d * e,
        ],
        1,
    )


@MODELS.register("rescal")
class Rescal(KnowledgeModel):
    """RESCAL (ICML 2011): a relation is a matrix.

    score = h^T R t (Nickel and others, A Three-Way Model for Collective Learning on Multi-Relational Data). Rows of
    entities begin normal of spread 0.1, matrices too; R[i, j] is at i * dim + j of a relation's row.
    """

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
