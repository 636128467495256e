"""QuatE: a relation turns each quaternion of the head.

score = (h x r / |r|) . t with Hamilton's product, |r| of each quaternion (Zhang and others, arXiv:1904.10281, equations
5 to 7). A row has the four parts of its quaternions one after the other, each a quarter. Rows begin as by Glorot and
Bengio: uniform between -sqrt(6 / dim) and that.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from configs.registry import MODELS
from models.knowledge.base import EntityQueries, KnowledgeModel, Side

_TINY = 1e-12


@MODELS.register("quate")
class QuatE(KnowledgeModel):
    """QuatE (arXiv:1904.10281): a relation turns quaternions."""

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
    """Turn the signs of i, j and k."""
    turned = -rows
    turned[:, : rows.shape[1] // 4] = rows[:, : rows.shape[1] // 4]
    return turned


def _product(p: Tensor, q: Tensor) -> Tensor:
    """Return Hamilton's product p x q."""
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
