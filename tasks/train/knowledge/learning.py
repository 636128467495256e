"""What is learnt from a batch of triples against drawn entities.

Each end that is asked for gives a query, made of the other end and the relation. Queries are compared with their true
entities row by row, and with the drawn ones, which some of them share, as a product; gradients come back the same way.
All are added up before a row moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.kernels.dropout import dropout
from models.kernels.row_moves import gather_rows, move_rows, set_lengths
from models.knowledge import KnowledgeModel, Side, relation_rows
from models.triple_losses.base import TripleLoss
from models.vectors import Meeting
from tasks.arrays import Array
from tasks.sampling.neighbors import derive_key
from tasks.train.knowledge.comparing import Comparison, Rows, moves_of
from tasks.train.knowledge.relations import Relations
from tasks.train.loaders.triples import DrawnEntities, Triples, negatives_shape
from tasks.train.tables.objective import Number
from tasks.train.tables.pools import Pool, drawn_chunk

_NEGATIVES, _ROUNDING, _DROPOUT, _SIDES = 2, 3, 4, 5
"""Purposes that keys are drawn for; 1 is the order of triples."""


class TripleLearning:
    """Learns from triples; see `Learning`."""

    def __init__(
        self,
        model: type[KnowledgeModel],
        options: Any,
        loader: Triples,
        loss: TripleLoss,
        relations: Relations,
        drawn: DrawnEntities,
        head_chances: Tensor | None,
        seed: int,
    ) -> None:
        """Remember what is learnt.

        Args:
            model: makes queries.
            options: the model's.
            loader: makes batches.
            loss: of scores.
            relations: the rows of relations, which are learnt too.
            drawn: draws entities to compare with.
            head_chances: how often the head is asked for, float32 (R,); None: as the loader's `sides` say.
            seed: of all that is drawn.
        """
        self.model, self.options, self.loader, self.loss = model, options, loader, loss
        self.relations, self.drawn, self.head_chances, self.seed = relations, drawn, head_chances, seed
        self.id_type: Any = loader.data.store["csc_indices"].dtype

    def parts(self, pool: Pool, row: int, column: int) -> list[slice]:
        """Return where the batches of a bucket lie."""
        return pool.parts(row, column, self.loader.room)

    def chunk_loss(self, tables: Meeting, chunk: int) -> float:
        """Return the mean loss of a batch, in a grid of one block."""
        return self._loss(tables, drawn_chunk(self.loader, chunk, self.id_type), (chunk, -1, 0), (0, 0))

    def bucket_loss(self, tables: Meeting, pool: Pool, row: int, column: int, first_chunk: int) -> float:
        """Return the mean loss of a bucket's first batch; 0: it has none."""
        n = len(pool.sizes)
        for part in self.parts(pool, row, column)[:1]:
            return self._loss(tables, pool.part(part), (first_chunk, -1, row * n + column), (row, column))
        return 0.0

    def _loss(self, tables: Meeting, columns: Sequence[Array], number: Number, blocks: tuple[int, int]) -> float:
        return float(_Batch(self, tables, columns, number, blocks).loss)

    def learn(
        self, tables: Meeting, columns: Sequence[Array], number: Number, blocks: tuple[int, int], rate: float
    ) -> None:
        """Take the steps of a batch: see `Learning.learn`."""
        if not len(columns[0]):
            return
        batch = _Batch(self, tables, columns, number, blocks)
        noise = derive_key(self.seed, _ROUNDING, *number) | 1
        own, other = tables["entities"]
        read = batch.read["head"], batch.read["tail"]
        moved = [(own, read[0] + read[1])] if own is other else [(own, read[0]), (other, read[1])]
        for place, (table, some) in enumerate(moved):
            rows, gradients = moves_of(some)
            move_rows(table, rows, gradients, rate, noise + 2 * place)
            if self.model.has_unit_entities(self.options):
                set_lengths(table, rows)
        move_rows(self.relations.table, *moves_of(batch.relations), rate, noise)


class _Batch:
    """The loss of a batch, and the gradients of all rows that it read."""

    def __init__(
        self,
        learning: TripleLearning,
        tables: Meeting,
        columns: Sequence[Array],
        number: Number,
        blocks: tuple[int, int],
    ) -> None:
        self.learning, self.number = learning, number
        self.config, self.options = learning.loader.config, learning.options
        own, other = tables["entities"]
        self.tables = {"head": own, "tail": other}
        self.blocks = dict(zip(("head", "tail"), blocks, strict=True))
        self.read: dict[Side, list[Rows]] = {"head": [], "tail": []}
        self.relations: list[Rows] = []
        self.dropped = 0
        heads, tails, self.relation = columns
        self.ends = {"head": self._read("head", heads), "tail": self._read("tail", tails)}
        self.loss = torch.zeros(())
        for side, some, weight in self._sides():
            self._ask(side, some, weight)
        if self.options.entity_penalty:
            for rows in self.ends.values():
                self._hold_back(rows, self.options.entity_penalty / len(self.relation))

    def _read(self, end: Side, numbers: Array) -> Rows:
        """Read rows of the block where an end's lie."""
        rows = self._dropped(numbers, gather_rows(self.tables[end], numbers), self.options.entity_dropout)
        self.read[end].append(rows)
        return rows

    def _ends(self, end: Side, some: Tensor | None) -> Rows:
        """Return the rows of some triples' ends; each time that they are read, other numbers are dropped."""
        rows = self.ends[end]
        return rows if some is None else self._read(end, rows.numbers[some.numpy()])

    def _dropped(self, numbers: Array, rows: Tensor, share: float) -> Rows:
        if not share:
            return Rows(numbers, rows)
        self.dropped += 1
        key = derive_key(self.learning.seed, _DROPOUT, *self.number, self.dropped)
        return Rows(numbers, dropout(rows, share, key=key, inplace=True), share, key)

    def _sides(self) -> list[tuple[Side, Tensor | None, float]]:
        """Return the ends that are asked for, of which triples (None: of all), and how much their mean loss counts."""
        sides = self.config.sides
        if sides == "both":
            return [("tail", None, 0.5), ("head", None, 0.5)]
        if sides != "bernoulli":
            return [(sides, None, 1.0)]
        assert self.learning.head_chances is not None
        chances = self.learning.head_chances[torch.from_numpy(self.relation.astype(np.int64))]
        generator = torch.Generator().manual_seed(derive_key(self.learning.seed, _SIDES, *self.number))
        of_head = torch.rand(len(chances), generator=generator) < chances
        found: list[tuple[Side, Tensor]] = [("tail", ~of_head), ("head", of_head)]
        return [(side, some.nonzero()[:, 0], float(some.float().mean())) for side, some in found if some.any()]

    def _ask(self, side: Side, some: Tensor | None, weight: float) -> None:
        """Ask for one end of some triples."""
        options, model = self.options, self.learning.model
        other: Side = "head" if side == "tail" else "tail"
        known, asked = self._ends(other, some), self._ends(side, some)
        numbers = torch.from_numpy(self.relation.astype(np.int64))
        numbers = numbers if some is None else numbers[some]
        rows, asked_of = relation_rows(options, numbers, self.learning.relations.table.num_rows, side)
        table = self.learning.relations.table
        relation = self._dropped(rows.numpy(), gather_rows(table, rows.numpy()), options.relation_dropout)
        self.relations.append(relation)
        queries = model.queries(options, known.values, relation.values, asked_of)
        compared = Comparison(options.similarity, queries, asked, self._drawn(side, len(asked.numbers)), None, None)
        if self.config.known_end:
            compared.known = known
            if self.blocks["head"] == self.blocks["tail"]:
                compared.is_true = known.numbers == asked.numbers
        loss, by_true, by_others = self.learning.loss.of_drawn(*compared.scores())
        self.loss += loss * weight
        by_query, by_scale = compared.gradients(by_true.mul_(weight), by_others.mul_(weight))
        by_known, by_relation = model.query_gradients(
            options, known.values, relation.values, asked_of, by_query, by_scale
        )
        known.add(by_known)
        relation.add(by_relation)
        if options.relation_penalty:
            self._hold_back(relation, weight * options.relation_penalty / len(rows))

    def _drawn(self, side: Side, count: int) -> list[tuple[slice, Rows]]:
        """Draw entities; return them with the queries that share them."""
        groups, each = negatives_shape(self.config, count)
        numbers = np.empty((groups, each), self.learning.id_type)
        key = derive_key(self.learning.seed, _NEGATIVES, *self.number, 0 if side == "tail" else 1)
        self.learning.drawn.draw(self.blocks[side], key, numbers)
        size = -(-count // groups) if self.config.share is None else self.config.share
        return [
            (slice(number * size, min(count, (number + 1) * size)), self._read(side, numbers[number]))
            for number in range(groups)
        ]

    def _hold_back(self, rows: Rows, weight: float) -> None:
        """Add so much of the rows' penalty."""
        penalty, gradient = self.learning.model.penalty(self.options, rows.values)
        self.loss += weight * penalty.sum()
        rows.add(gradient.mul_(weight))
