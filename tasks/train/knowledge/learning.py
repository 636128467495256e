"""What is learnt from a batch of triples against drawn entities.

Each end that is asked for gives a query, made of the other end and the relation. Queries are compared with their true
entities row by row, and with the drawn ones, which some of them share, as a product; gradients come back the same way.
All are added up before a row moves.

Batches are learnt one after the other; threads share the products of each. Threads that learnt batches of their own at
once would read rows that others are about to move: validation MRR of ComplEx on WN18RR after 10 epochs of batches of
256 was .446 with one thread, .450 with two on each batch, and .423 with two batches at once. Nor were they faster: most
of what is left is short, and threads then wait for Python's lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.kernels.dense.dropout import dropout
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.row_moves import gather_rows, move_rows, set_lengths
from models.kernels.tables.row_tables import RowTable
from models.knowledge.base import Side, relation_rows
from models.vectors.base import AnyMeeting
from tasks.arrays import Array
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.train.knowledge.comparing import Comparison, Gradients, ReadRows
from tasks.train.knowledge.relations import TripleTask
from tasks.train.loaders.triples import DrawnEntities, TripleLoader, negatives_shape
from tasks.train.tables.objective import BlockEnds, Number, Part
from tasks.train.tables.pools import Pool, drawn_chunk

_NEGATIVES, _ROUNDING, _DROPOUT, _BLOCKS = 2, 3, 4, 7
"""Purposes that keys are drawn for; 1 is the order of triples, 6 is the start."""
_SIDES: tuple[Side, Side] = ("tail", "head")


class TripleLearning:
    """Learns from triples; see `SampleStepper`."""

    def __init__(self, task: TripleTask, drawn: DrawnEntities) -> None:
        self.model, self.options, self.loss = task.model, task.options, task.loss
        self.loader: TripleLoader = task.loader
        self.relations, self.projection, self.seed = task.relations, task.projection, task.seed
        self.drawn = drawn
        self.id_type: Any = self.loader.data.store["csc_indices"].dtype

    def parts(self, pool: Pool, row: int, column: int) -> list[Part]:
        """Return where the batches of a bucket lie, all about as large; those within block `row` come last."""
        parts_of_bucket, room = [], self.loader.room
        for beside, place in enumerate((column, pool.num_blocks + column)):
            size = int((pool.ends[:, row, place] - pool.starts[:, row, place]).sum())
            parts = pool.parts(row, place, -(-size // -(-size // room))) if size else []
            parts_of_bucket += [(part, BlockEnds(row, column, bool(beside))) for part in parts]
        return parts_of_bucket

    def chunk_loss(self, tables: AnyMeeting, chunk: int) -> float:
        """Return the mean loss of a batch, in a grid of one block."""
        return self._loss(tables, drawn_chunk(self.loader, chunk, self.id_type), (chunk, -1, 0), BlockEnds(0, 0))

    def bucket_loss(self, tables: AnyMeeting, pool: Pool, row: int, column: int, first_chunk: int) -> float:
        """Return the mean loss of a bucket's first batch; 0: it has none."""
        for part, ends in self.parts(pool, row, column)[:1]:
            return self._loss(tables, pool.part(part), (first_chunk, -1, row * pool.num_blocks + column), ends)
        return 0.0

    def _loss(self, tables: AnyMeeting, columns: Sequence[Array], number: Number, ends: BlockEnds) -> float:
        return float(_TripleBatch(self, tables, columns, number, ends).loss)

    def learn(self, tables: AnyMeeting, columns: Sequence[Array], number: Number, ends: BlockEnds, rate: float) -> None:
        """Take the steps of a batch: see `PairLearning.learn`."""
        if not len(columns[0]):
            return
        batch = _TripleBatch(self, tables, columns, number, ends)
        noise = derive_key(self.seed, _ROUNDING, *number) | 1
        for place, (block, moved) in enumerate(batch.gradients.items()):
            table = batch.tables[block]
            rows, gradients = moved.moves()
            move_rows(table, rows, gradients, rate, noise + 2 * place)
            if self.projection is not None:
                self.projection.collect(self.nodes(block, rows), gradients)
            if self.model.unit_entities:
                set_lengths(table, rows)
        if self.projection is not None:
            self.projection.step(rate, noise)
        self.relations.move(*batch.of_relations.moves(), rate, noise)

    def nodes(self, block: int, rows: Array) -> Array:
        """Return the entities that rows of a block belong to."""
        return block + len(self.drawn.sizes) * rows.astype(np.int64)


class _TripleBatch:
    """The loss of a batch, and the gradients of all rows that it read."""

    def __init__(
        self, learning: TripleLearning, tables: AnyMeeting, columns: Sequence[Array], number: Number, ends: BlockEnds
    ) -> None:
        self.learning, self.number = learning, number
        self.config, self.options = learning.loader.config, learning.options
        self.blocks: dict[Side, int] = {"head": ends.row, "tail": ends.row if ends.beside else ends.column}
        self.met = ends
        own, other = tables["entities"]
        self.tables: dict[int, RowTable | DeviceTable] = {ends.row: own, ends.column: other}
        self.gradients: dict[int, Gradients] = {}
        """Of the blocks' rows."""
        self.of_relations = learning.relations.gradients()
        self.relation_rows: ReadRows | None = None
        """Where both ends ask with the same."""
        self.dropped = 0
        heads, tails, self.relation = columns
        # A triple moves its rows as far in a smaller batch as in a whole one. With the mean of a few, Adagrad would see
        # gradients of many times the size, and hardly move those rows again.
        self.share = len(self.relation) / learning.loader.room
        self.ends: dict[Side, ReadRows] = {
            "head": self._read(self.blocks["head"], heads),
            "tail": self._read(self.blocks["tail"], tails),
        }
        self.loss = self.ends["head"].values.new_zeros(())
        for side in _SIDES:
            self._ask(side)
        if self.options.entity_penalty:
            for rows in self.ends.values():
                self._hold_back(rows, self.options.entity_penalty / len(self.relation))

    def _read(self, block: int, numbers: Array) -> ReadRows:
        table = self.tables[block]
        if block not in self.gradients:
            self.gradients[block] = Gradients(table)
        rows = gather_rows(table, numbers)
        if self.learning.projection is not None:
            self.learning.projection.add_to(rows, self.learning.nodes(block, numbers))
        return self._dropped(self.gradients[block], numbers, rows, self.options.entity_dropout)

    def _dropped(self, gradients: Gradients, numbers: Array, rows: Tensor, share: float) -> ReadRows:
        if not share:
            return ReadRows(gradients, numbers, rows)
        self.dropped += 1
        key = derive_key(self.learning.seed, _DROPOUT, *self.number, self.dropped)
        return ReadRows(gradients, numbers, dropout(rows, share, key=key, inplace=True), share, key)

    def _ask(self, side: Side) -> None:
        """Ask for one end of the triples, which counts half."""
        options, model = self.options, self.learning.model
        other: Side = "head" if side == "tail" else "tail"
        known, asked = self.ends[other], self.ends[side]
        relation, asked_of = self._relation(side)
        queries = model.queries(options, known.values, relation.values, asked_of)
        block = self._block_of_drawn(side, self.blocks[other])
        groups = self._drawn(side, block, len(asked.numbers))
        compared = Comparison(options.similarity, queries, asked, groups, block == self.blocks[side], None, None)
        if self.config.known_end:
            compared.known = known
            if self.blocks["head"] == self.blocks["tail"]:
                compared.is_true = known.numbers == asked.numbers
        loss, by_true, by_others = self.learning.loss.of_drawn(*compared.scores())
        self.loss += loss * 0.5
        weight = 0.5 * self.share
        by_query, by_scale = compared.gradients(by_true.mul_(weight), by_others.mul_(weight))
        by_known, by_relation = model.query_gradients(
            options, known.values, relation.values, asked_of, by_query, by_scale
        )
        known.add(by_known)
        relation.add(by_relation)
        if options.relation_penalty:
            self._hold_back(relation, 0.5 * options.relation_penalty / len(relation.numbers))

    def _relation(self, side: Side) -> tuple[ReadRows, Side]:
        """Return the rows of relations for queries of an end, and the end that they are asked for.

        Both ends may ask with the same rows: these are read once, unless other numbers are dropped each time.
        """
        options, relations = self.options, self.learning.relations
        is_shared = not options.relation_dropout and not options.inverse_relations
        if is_shared and self.relation_rows is not None:
            return self.relation_rows, side
        numbers = torch.from_numpy(self.relation.astype(np.int64))
        rows, asked_of = relation_rows(options, numbers, relations.table.num_rows, side)
        taken = rows.numpy()
        relation = self._dropped(self.of_relations, taken, relations.read(taken), options.relation_dropout)
        if is_shared:
            self.relation_rows = relation
        return relation, asked_of

    def _block_of_drawn(self, side: Side, known_block: int) -> int:
        """Choose the block that entities are drawn from, for queries whose known ends lie in block `known_block`.

        It is one of the two that meet: the known end's in one of n batches, n being the number of blocks. Over all
        pairs of blocks a query then meets each block's entities equally often. Were it every other batch, those of its
        own block would come more often than others by far, and seem to be false; were it never, its true entity would
        be compared with no other block's. Validation MRR of FB15k-237 after 5 epochs in 4 x 4 blocks: .297, .224 and
        .296; in one block .301.
        """
        row, column = self.met.row, self.met.column
        if row == column:
            return known_block
        key = derive_key(self.learning.seed, _BLOCKS, *self.number, 0 if side == "tail" else 1)
        is_own = key % len(self.learning.drawn.sizes) == 0
        return known_block if is_own else row + column - known_block

    def _drawn(self, side: Side, block: int, count: int) -> list[tuple[slice, ReadRows]]:
        """Draw entities of a block; return them with the queries that share them."""
        groups, each = negatives_shape(self.config, count)
        numbers = np.empty((groups, each), self.learning.id_type)
        key = derive_key(self.learning.seed, _NEGATIVES, *self.number, 0 if side == "tail" else 1)
        self.learning.drawn.draw(block, key, numbers)
        size = -(-count // groups) if self.config.share is None else self.config.share
        return [
            (slice(number * size, min(count, (number + 1) * size)), self._read(block, numbers[number]))
            for number in range(groups)
        ]

    def _hold_back(self, rows: ReadRows, weight: float) -> None:
        """Add so much of the rows' penalty."""
        penalty, gradient = self.learning.model.penalty(self.options, rows.values)
        self.loss += weight * penalty.sum()
        rows.add(gradient.mul_(weight * self.share))
