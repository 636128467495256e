"""Queries beside what they are compared with: scores, and the gradients of all that made them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from models.kernels.dense.dropout import dropout
from models.kernels.memory import empty
from models.kernels.simd.vector import has_kernels
from models.kernels.similarity.on_threads import all_similarities, all_similarity_gradients
from models.kernels.similarity.rows import SimilarityKind, pair_similarities, pair_similarity_gradients
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.row_tables import RowTable
from models.knowledge.base import EntityQueries
from tasks.arrays import Array
from tasks.train.loaders.triples import hide_drawn


class Gradients:
    """What comes for the rows that a batch reads of a table, one behind another.

    It holds no `ReadRows`: these hold it, and in a circle both would stay until Python's collector comes by.
    """

    def __init__(self, table: RowTable | DeviceTable) -> None:
        """Begin with none."""
        self.num_read = 0
        """Rows."""
        self._moved: list[tuple[Array, slice, float, int]] = []
        device = table.values.device if isinstance(table, DeviceTable) else None
        self._values, self._used = torch.empty(0, table.width, device=device), 0

    def place(self, numbers: Array, share: float, key: int) -> slice:
        """Return where those of rows lie that have none yet; see `ReadRows`."""
        start, self._used = self._used, self._used + len(numbers)
        if self._used > len(self._values):
            # What was read is of one end; the other needs as much.
            shape = 2 * max(self.num_read, self._used), self._values.shape[1]
            on_cpu = self._values.device.type == "cpu"
            larger = empty(shape, torch.float32) if on_cpu else self._values.new_empty(shape)
            larger[:start] = self._values[:start]
            self._values = larger
        place = slice(start, self._used)
        self._moved.append((numbers, place, share, key))
        return place

    def __getitem__(self, place: slice) -> Tensor:
        """Return some, to be changed."""
        return self._values[place]

    def moves(self) -> tuple[Array, Tensor]:
        """Return the numbers of rows, and all that came for them; nothing comes after that."""
        for _, place, share, key in self._moved:
            if share:
                dropout(self[place], share, key=key, inplace=True)
        return np.concatenate([numbers for numbers, *_ in self._moved]), self._values[: self._used]


@dataclass
class ReadRows:
    """Rows that were read, some of their numbers dropped."""

    gradients: Gradients
    """Of their table."""
    numbers: Array
    values: Tensor
    share: float = 0.0
    """Of the numbers, dropped by `key`."""
    key: int = 0
    _place: slice | None = None

    def __post_init__(self) -> None:
        self.gradients.num_read += len(self.numbers)

    def add(self, gradients: Tensor) -> None:
        """Add gradients by the values."""
        if self._place is None:
            self._place = self.gradients.place(self.numbers, self.share, self.key)
            self.gradients[self._place].copy_(gradients)
        else:
            self.gradients[self._place].add_(gradients)


@dataclass
class Comparison:
    """Queries (n, w), each with its true entity, and with those that its group drew."""

    kind: SimilarityKind
    queries: EntityQueries
    true: ReadRows
    """Row i is that of query i."""
    groups: list[tuple[slice, ReadRows]]
    """Queries, and the entities (K, w) that all of these are compared with."""
    with_true: bool
    """Whether a query's true entity may be among the drawn ones: they are of one block."""
    known: ReadRows | None
    """Row i is compared with query i, too."""
    is_true: Array | None
    """Queries whose known end is the true one, bool (n,); None: the two are of different blocks."""
    _scores: list[Tensor] = field(default_factory=list)

    def scores(self) -> tuple[Tensor, Tensor]:
        """Return the scores of true entities (n,) and of the others (n, K or K + 1); -infinity for true ones."""
        kind, vectors, scale = self.kind, self.queries.vectors, self.queries.scale
        for part, others in self.groups:
            own = None if scale is None else scale[part]
            self._scores.append(all_similarities(kind, vectors[part], others.values, own))
        if self.known is not None:
            of_others = self._beside_known()
        else:  # Euclid's distances are asked for once more, and the loss puts gradients in the place of scores
            of_others = self._scores[0] if len(self._scores) == 1 and kind != "l2" else torch.cat(self._scores)
        for part, others in self.groups if self.with_true else ():
            scores, asked = of_others[part], self.true.numbers[part]
            if has_kernels(scores):
                hide_drawn(scores.numpy(), asked, others.numbers)
                continue
            true, drawn = (torch.from_numpy(np.ascontiguousarray(n)).to(scores.device) for n in (asked, others.numbers))
            scores[:, : len(drawn)].masked_fill_(true[:, None] == drawn, -torch.inf)
        return pair_similarities(kind, vectors, self.true.values, scale), of_others

    def _beside_known(self) -> Tensor:
        assert self.known is not None
        vectors = self.queries.vectors
        with_known = vectors.new_empty(len(vectors), self._scores[0].shape[1] + 1)
        for (part, _), scores in zip(self.groups, self._scores, strict=True):
            with_known[part, :-1] = scores
        with_known[:, -1] = pair_similarities(self.kind, vectors, self.known.values, self.queries.scale)
        if self.is_true is not None:
            with_known[:, -1].masked_fill_(torch.from_numpy(self.is_true).to(with_known.device), -torch.inf)
        return with_known

    def gradients(self, by_true: Tensor, by_others: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the gradients by queries and scales, of those by the scores; entities' rows get theirs."""
        kind, vectors, scale = self.kind, self.queries.vectors, self.queries.scale
        by_query, by_entity, by_scale = pair_similarity_gradients(kind, vectors, self.true.values, by_true, scale)
        self.true.add(by_entity)
        if self.known is not None:
            slopes, by_others = by_others[:, -1].contiguous(), by_others[:, :-1]
            more = pair_similarity_gradients(kind, vectors, self.known.values, slopes, scale)
            self.known.add(more[1])
            by_query += more[0]
            by_scale = None if by_scale is None or more[2] is None else by_scale + more[2]
        for (part, others), scores in zip(self.groups, self._scores, strict=True):
            own = None if scale is None else scale[part]
            more = all_similarity_gradients(
                kind, vectors[part], others.values, by_others[part], own, scores, by_query[part]
            )
            others.add(more[1])
            if by_scale is not None and more[2] is not None:
                by_scale[part] += more[2]
        return by_query, by_scale
