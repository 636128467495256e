"""Queries beside what they are compared with: scores, and the gradients of all that made them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from models.kernels.dropout import dropout
from models.kernels.similarity import (
    Kind,
    pair_similarities,
    pair_similarity_gradients,
    similarities,
    similarity_gradients,
)
from models.knowledge import Queries
from tasks.arrays import Array
from tasks.train.loaders.triples import hide_drawn


@dataclass
class Rows:
    """Rows that were read, some of their numbers dropped, and the gradients that came for them."""

    numbers: Array
    values: Tensor
    share: float = 0.0
    """Of the numbers, dropped by `key`."""
    key: int = 0
    gradients: Tensor | None = None

    def add(self, gradients: Tensor) -> None:
        """Add gradients by the values. Others may hold the same tensor: it is kept, and not changed."""
        self.gradients = gradients if self.gradients is None else self.gradients + gradients


def moves_of(read: list[Rows]) -> tuple[Array, Tensor]:
    """Return the numbers of rows, and all gradients that came for them."""
    numbers, gradients = [], []
    for rows in read:
        if rows.gradients is not None:
            numbers.append(rows.numbers)
            gradients.append(dropout(rows.gradients, rows.share, key=rows.key) if rows.share else rows.gradients)
    return np.concatenate(numbers), torch.cat(gradients)


@dataclass
class Comparison:
    """Queries (n, w), each with its true entity, and with those that its group drew."""

    kind: Kind
    queries: Queries
    true: Rows
    """Row i is that of query i."""
    groups: list[tuple[slice, Rows]]
    """Queries, and the entities (K, w) that all of these are compared with."""
    with_true: bool
    """Whether a query's true entity may be among the drawn ones: they are of one block."""
    known: Rows | None
    """Row i is compared with query i, too."""
    is_true: Array | None
    """Queries whose known end is the true one, bool (n,); None: the two are of different blocks."""
    _scores: list[Tensor] = field(default_factory=list)

    def scores(self) -> tuple[Tensor, Tensor]:
        """Return the scores of true entities (n,) and of the others (n, K or K + 1); -infinity for true ones."""
        kind, vectors, scale = self.kind, self.queries.vectors, self.queries.scale
        for part, others in self.groups:
            own = None if scale is None else scale[part]
            self._scores.append(similarities(kind, vectors[part], others.values, own))
        found = self._beside_known() if self.known is not None else self._drawn()
        for part, others in self.groups if self.with_true else ():
            hide_drawn(found[part].numpy(), self.true.numbers[part], others.numbers)
        return pair_similarities(kind, vectors, self.true.values, scale), found

    def _drawn(self) -> Tensor:
        # The loss puts gradients in its place, and Euclid's distances are asked for once more.
        return self._scores[0] if len(self._scores) == 1 and self.kind != "l2" else torch.cat(self._scores)

    def _beside_known(self) -> Tensor:
        assert self.known is not None
        vectors = self.queries.vectors
        found = torch.empty(len(vectors), self._scores[0].shape[1] + 1)
        for (part, _), scores in zip(self.groups, self._scores, strict=True):
            found[part, :-1] = scores
        found[:, -1] = pair_similarities(self.kind, vectors, self.known.values, self.queries.scale)
        if self.is_true is not None:
            found[torch.from_numpy(self.is_true), -1] = -torch.inf
        return found

    def gradients(self, by_true: Tensor, by_others: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the gradients by queries and scales, of those by the scores; entities' rows get theirs."""
        kind, vectors, scale = self.kind, self.queries.vectors, self.queries.scale
        by_query, by_entity, by_scale = pair_similarity_gradients(kind, vectors, self.true.values, by_true, scale)
        self.true.add(by_entity)
        if self.known is not None:
            slopes, by_others = by_others[:, -1].contiguous(), by_others[:, :-1]
            found = pair_similarity_gradients(kind, vectors, self.known.values, slopes, scale)
            self.known.add(found[1])
            by_query += found[0]
            by_scale = None if by_scale is None or found[2] is None else by_scale + found[2]
        for (part, others), scores in zip(self.groups, self._scores, strict=True):
            own = None if scale is None else scale[part]
            found = similarity_gradients(kind, vectors[part], others.values, by_others[part], own, scores)
            others.add(found[1])
            by_query[part] += found[0]
            if by_scale is not None and found[2] is not None:
                by_scale[part] += found[2]
        return by_query, by_scale
