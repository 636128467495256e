"""The steps of samples on the CPU's threads."""

from __future__ import annotations

import numpy as np

from models.kernels.row_tables import RowTable
from models.kernels.threads import run_each
from models.vectors import Meeting
from tasks.arrays import Array
from tasks.train.strategies.block_grid import Round
from tasks.train.tables.grid import Grid
from tasks.train.tables.objective import Number, Objective
from tasks.train.tables.pools import Pool


class CpuEngine:
    """Trains chunks of a whole table without locks, and pairs of blocks each on a thread: see `Engine`."""

    def __init__(self, objective: Objective, grid: Grid) -> None:
        self.objective, self.grid = objective, grid

    def compile(self) -> None:
        """Have all that takes steps compiled, by a chunk that is drawn and no pair of it that is trained."""
        objective, made = self.objective, self.grid.tables
        centres, contexts = np.empty((2, objective.loader.room), objective.id_type)
        objective.loader.fill(0, centres, contexts)

        def one_row(name: str) -> RowTable:
            return RowTable.zeros(1, made.widths()[name], made.precision, made.rule)

        names = {pairing.name: made.names(pairing) for pairing in made.pairings}
        tables = {name: (one_row(own), one_row(other)) for name, (own, other) in names.items()}
        self._learn(tables, centres[:0], contexts[:0], (0, 0, 0), 0, 0.0)

    def train_chunks(self, chunks: range, rates: Array) -> tuple[float, int]:
        """Have threads draw chunks and train them at once."""
        objective, tables = self.objective, self.grid.meeting(0, 0)
        loss, counts = objective.chunk_loss(tables, chunks.start), np.zeros(len(chunks), np.int64)

        def work(number: int) -> None:
            centres, contexts = (np.empty(objective.loader.room, objective.id_type) for _ in range(2))
            chunk = chunks[number]
            count = counts[number] = objective.loader.fill(chunk, centres, contexts)
            self._learn(tables, centres[:count], contexts[:count], (chunk, 0, 0), 0, float(rates[number]))

        run_each(work, len(chunks))
        return loss, int(counts.sum())

    def train_buckets(self, pool: Pool, met: Round, first_chunk: int, rate: float) -> list[float]:
        """Train each bucket on a thread, its pairs in their order."""
        losses = [0.0] * len(met)

        def work(number: int) -> None:
            row, column = met[number]
            tables, bucket = self.grid.meeting(row, column), 1 + row * self.grid.tables.num_blocks + column
            losses[number] = self.objective.bucket_loss(tables, pool, row, column, first_chunk)
            for part in self.objective.parts(pool, row, column):
                place = first_chunk, bucket, part.start
                self._learn(tables, pool.rows[part], pool.columns[part], place, column, rate)

        run_each(work, len(met))
        return losses

    def _learn(self, tables: Meeting, centres: Array, contexts: Array, number: Number, block: int, rate: float) -> None:
        """Draw the negatives of some pairs, in a block of contexts, and take the steps."""
        objective = self.objective
        samples = objective.samples(centres, contexts, number, block)
        objective.model.learn(objective.options, tables, samples, rate, objective.noise(number))
