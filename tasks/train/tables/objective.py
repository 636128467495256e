"""What is learnt from which samples, and by which random numbers: the same wherever the steps are taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from models.kernels.threads import run_each
from models.vectors.base import AnyMeeting, Meeting, SampledModel, Samples
from tasks.arrays import Array
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.walks.alias import alias_table, draw_alike, draw_many
from tasks.train.loaders.pairs import PairLoader
from tasks.train.strategies.block_grid import Round
from tasks.train.tables.grid import Grid
from tasks.train.tables.pools import Pool, drawn_chunk

PAIRS, NEGATIVES, ROUNDING = 1, 2, 3
"""Purposes that keys are drawn for."""
_PART_PAIRS = 1 << 14
"""Pairs of a bucket whose negatives have a key of their own: with these they stay in a core's second-level cache."""
_LOSS_PAIRS = 1 << 12
"""Of a pool, whose loss is measured before they are trained."""

Number = tuple[int, int, int]
"""Of some pairs that are drawn for together: the first chunk of their pool, or their own; 0, or 1 and their bucket's
number; where they begin in the pool."""


@dataclass(frozen=True)
class BlockEnds:
    """Numbers of blocks: those that meet, and those that samples have their ends in, both among these."""

    row: int
    column: int
    beside: bool = False
    """Whether samples have both ends in block `row`, and block `column` only lies beside it."""


Part = tuple[slice, BlockEnds]
"""Some samples of a pool."""


class Negatives:
    """Tables to draw the rows of negatives from, a block of contexts each, by degree^power."""

    def __init__(self, degree: Array, num_blocks: int, power: float) -> None:
        """`degree`: integer or float (N,). Blocks whose nodes have no edge draw all of their rows alike."""
        self._tables: list[Array | None] = []
        """None: all rows of the block are drawn alike, which needs no table."""
        self._num_rows: list[int] = []
        for block in range(num_blocks):
            weights = np.asarray(degree[block::num_blocks], np.float64) ** power
            weights[np.asarray(degree[block::num_blocks]) <= 0] = 0  # 0^0 is 1
            is_uniform = len(weights) == 0 or weights.min() == weights.max()
            self._tables.append(None if is_uniform else alias_table(weights))
            self._num_rows.append(len(weights))

    @property
    def num_blocks(self) -> int:
        """Number of blocks."""
        return len(self._tables)

    def draw(self, block: int, state: int, out: Array) -> None:
        """Fill out (m,) with rows of a block."""
        table = self._tables[block]
        if table is None:
            draw_alike(self._num_rows[block], np.uint64(state), out)
        else:
            draw_many(table, np.uint64(state), out)


@dataclass(frozen=True)
class PairLearning:
    """Learns from pairs."""

    model: type[SampledModel]
    options: Any
    """The model's."""
    loader: PairLoader
    negatives: Negatives
    seed: int

    @property
    def id_type(self) -> Any:
        """Dtype of the numbers of nodes and rows."""
        return self.loader.data.store["csr_indices"].dtype

    def parts(self, pool: Pool, row: int, column: int) -> list[Part]:
        """Return where the pairs of a bucket lie, in parts that are drawn for one by one."""
        return [(part, BlockEnds(row, column)) for part in pool.parts(row, column, _PART_PAIRS)]

    def key(self, number: Number) -> int:
        """Return the key of the negatives of some pairs."""
        return derive_key(self.seed, NEGATIVES, *number)

    def noise(self, number: Number) -> int:
        """Return the seed of what is rounded by chance in some pairs' steps."""
        return derive_key(self.seed, ROUNDING, *number) | 1

    def samples(self, centres: Array, contexts: Array, number: Number, block: int) -> Samples:
        """Draw the negatives of pairs, rows (n,) each, in a block of contexts."""
        groups = -(-len(centres) // self.options.shared_negatives)
        drawn = np.empty((groups, self.options.negatives), self.id_type)
        self.negatives.draw(block, self.key(number), drawn.reshape(-1))
        return Samples(centres, contexts, drawn)

    def learn(self, tables: Meeting, columns: Sequence[Array], number: Number, ends: BlockEnds, rate: float) -> None:
        """Take the steps of samples, in place.

        Args:
            tables: what their ends meet in.
            columns: rows (n,) of centres and of contexts in their blocks, and of triples relations.
            number: what is drawn depends on it and nothing else.
            ends: the blocks.
            rate: learning rate.
        """
        centres, contexts = columns
        samples = self.samples(centres, contexts, number, ends.column)
        self.model.learn(self.options, tables, samples, rate, self.noise(number))

    def chunk_loss(self, tables: AnyMeeting, chunk: int) -> float:
        """Return the mean loss of a chunk's first pairs, in a grid of one block."""
        centres, contexts = (column[:_LOSS_PAIRS] for column in drawn_chunk(self.loader, chunk, self.id_type))
        return self._loss(tables, centres, contexts, (chunk, -1, 0), 0)

    def bucket_loss(self, tables: AnyMeeting, pool: Pool, row: int, column: int, first_chunk: int) -> float:
        """Return the mean loss of a bucket's first pairs; 0: it has none."""
        n = self.negatives.num_blocks
        for part, _ in self.parts(pool, row, column)[:1]:
            some = slice(part.start, min(part.stop, part.start + max(1, _LOSS_PAIRS // n**2)))
            number = first_chunk, -1, row * n + column
            return self._loss(tables, pool.rows[some], pool.columns[some], number, column)
        return 0.0

    def _loss(self, tables: AnyMeeting, centres: Array, contexts: Array, number: Number, block: int) -> float:
        return self.model.loss(self.options, tables, self.samples(centres, contexts, number, block))


class Stepper(Protocol):
    """Takes the steps of samples, in blocks that the grid has loaded to be changed."""

    def train_chunks(self, chunks: range, rates: Array) -> tuple[float, int]:
        """Draw the chunks of a grid of one block and take their steps; `rates`: of each, float64 (chunks,).

        Returns the mean loss of some of the pairs before their steps, and the number of all.
        """

    def train_buckets(self, pool: Pool, met: Round, first_chunk: int, rate: float) -> list[float]:
        """Take the steps of the pairs of some buckets, no more than `RankDevice.workers`, which share no block.

        `first_chunk`: where the pool begins. Returns the mean loss of some pairs of each bucket before their steps.
        """


Run = Callable[[Callable[[int], None], int], None]
Meet = Callable[[int, int], AnyMeeting]


def one_by_one(call: Callable[[int], None], count: int) -> None:
    """Call call(0), ..., call(count - 1): of steps that use all threads themselves."""
    for number in range(count):
        call(number)


class SampleStepper:
    """Trains chunks of a whole table without locks, and pairs of blocks each on a thread: see `Stepper`."""

    def __init__(self, objective: Any, grid: Grid, run: Run = run_each, meet: Meet | None = None) -> None:
        """`objective`: a PairLearning, or what has its `loader`, `id_type`, `parts`, `learn` and losses. `run` calls a
        function for each of some numbers, on all threads or one by one; `meet` returns the tables of a pair of blocks
        where steps are taken, None: the grid's own.
        """
        self.objective, self.grid, self.run, self.meet = objective, grid, run, meet or grid.meeting

    def train_chunks(self, chunks: range, rates: Array) -> tuple[float, int]:
        """Have threads draw chunks and train them at once."""
        objective, tables = self.objective, self.meet(0, 0)
        loss, counts = objective.chunk_loss(tables, chunks.start), np.zeros(len(chunks), np.int64)

        def work(number: int) -> None:
            columns = drawn_chunk(objective.loader, chunks[number], objective.id_type)
            counts[number] = len(columns[0])
            objective.learn(tables, columns, (chunks[number], 0, 0), BlockEnds(0, 0), float(rates[number]))

        self.run(work, len(chunks))
        return loss, int(counts.sum())

    def train_buckets(self, pool: Pool, met: Round, first_chunk: int, rate: float) -> list[float]:
        """Train each bucket on a thread, its pairs in their order."""
        losses = [0.0] * len(met)

        def work(number: int) -> None:
            row, column = met[number]
            parts = self.objective.parts(pool, row, column)
            if not parts:
                return  # blocks need not be brought to a device
            tables, bucket = self.meet(row, column), 1 + row * self.grid.tables.num_blocks + column
            losses[number] = self.objective.bucket_loss(tables, pool, row, column, first_chunk)
            for part, ends in parts:
                self.objective.learn(tables, pool.part(part), (first_chunk, bucket, part.start), ends, rate)

        self.run(work, len(met))
        return losses
