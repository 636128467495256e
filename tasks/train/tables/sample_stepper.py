"""The steps of samples that are drawn on the CPU, and learnt there by threads, or on a device one after the other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from models.kernels.threads import run_each
from models.vectors.base import AnyMeeting
from tasks.arrays import Array
from tasks.train.strategies.block_grid import Round
from tasks.train.tables.grid import Grid
from tasks.train.tables.objective import BlockEnds, Learning
from tasks.train.tables.pools import Pool, drawn_chunk

Run = Callable[[Callable[[int], None], int], None]
Meet = Callable[[int, int], AnyMeeting]


def one_by_one(call: Callable[[int], None], count: int) -> None:
    """Call call(0), ..., call(count - 1): of steps that use all threads themselves."""
    for number in range(count):
        call(number)


class SampleStepper:
    """Trains chunks of a whole table without locks, and pairs of blocks each on a thread: see `Stepper`."""

    def __init__(self, objective: Learning, grid: Grid, run: Run = run_each, meet: Meet | None = None) -> None:
        """`run` calls a function for each of some numbers, on all threads or one by one; `meet` returns the tables of
        a pair of blocks where steps are taken, None: the grid's own.
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
