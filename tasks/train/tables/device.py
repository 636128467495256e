"""The steps of pairs on a device, in Triton. Not yet run on a GPU: tested in Triton's interpreter.

The CPU's threads draw pairs and negatives, and the device learns from many chunks at once; blocks stay there while they
have room. Steps are taken without locks, so that results are near the CPU's and differ from run to run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch

from models.kernels.tables.device_tables import DeviceTable
from models.kernels.threads import run_each
from models.vectors.base import DeviceMeeting, DeviceSamples, Samples
from tasks.arrays import Array
from tasks.train.strategies.block_grid import Round
from tasks.train.tables.block_files import Key
from tasks.train.tables.grid import Grid
from tasks.train.tables.objective import Number, PairLearning
from tasks.train.tables.pools import Pool, drawn_chunk

_LAUNCH_NUMBERS = 1 << 25
"""Of nodes that are drawn and trained at once: 4 million pairs with 5 negatives each. Not tuned."""
_ROOM_STEP = 256
"""Room for a part of a bucket is a multiple of it: all begin at 16 bytes then; for others Triton compiles once more."""


class ResidentBlocks:
    """Blocks of a grid that a device has copies of: those that were asked for last."""

    def __init__(self, grid: Grid, device: torch.device, most: int) -> None:
        """`most`: blocks that the device holds. Those that make room go back into the grid."""
        self.grid, self.device, self.most = grid, device, most
        self._held: OrderedDict[Key, DeviceTable] = OrderedDict()
        grid.take_back = self.give_back

    def meeting(self, row: int, column: int) -> DeviceMeeting:
        """Return `Grid.meeting`'s blocks, which are loaded to be changed, on the device."""
        met = self.grid.keys(row, column)
        assert len(met) <= self.most, f"{len(met)} blocks meet, of {self.most} at most"
        for key in met:
            if key in self._held:
                self._held.move_to_end(key)
        missing = [key for key in met if key not in self._held]
        while self._held and len(self._held) + len(missing) > self.most:
            self.give_back(next(iter(self._held)))
        for key in missing:
            self._held[key] = DeviceTable.of(self.grid.block(key), self.device)
        pairs = self.grid.key_pairs(row, column)
        return {name: (self._held[centres], self._held[contexts]) for name, (centres, contexts) in pairs.items()}

    def give_back(self, key: Key) -> None:
        """Write a block's rows into the grid if the device has a copy of it, which is then dropped."""
        copy = self._held.pop(key, None)
        if copy is not None:
            copy.copy_to(self.grid.block(key))


class DeviceStepper:
    """Trains chunks and buckets one after the other, all pairs of a launch side by side: see `Stepper`."""

    def __init__(self, objective: PairLearning, blocks: ResidentBlocks) -> None:
        self.objective, self.blocks = objective, blocks

    def train_chunks(self, chunks: range, rates: Array) -> tuple[float, int]:
        """Draw and train as many chunks at once as a launch takes."""
        objective, tables = self.objective, self.blocks.meeting(0, 0)
        loss = objective.chunk_loss(tables, chunks.start)
        numbers = [(chunk, 0, 0) for chunk in chunks]
        draws = [partial(self._chunk, chunk) for chunk in chunks]
        return loss, self._learn(tables, draws, numbers, rates, objective.loader.room)

    def _chunk(self, chunk: int) -> Samples:
        objective = self.objective
        centres, contexts = drawn_chunk(objective.loader, chunk, objective.id_type)
        return objective.samples(centres, contexts, (chunk, 0, 0), 0)

    def train_buckets(self, pool: Pool, met: Round, first_chunk: int, rate: float) -> list[float]:
        """Bring a bucket's blocks to the device, if they are not there, and train its pairs."""
        return [self._train_bucket(pool, row, column, first_chunk, rate) for row, column in met]

    def _train_bucket(self, pool: Pool, row: int, column: int, first_chunk: int, rate: float) -> float:
        objective, bucket = self.objective, 1 + row * pool.num_blocks + column
        parts = [part for part, _ in objective.parts(pool, row, column)]
        if not parts:
            return 0.0
        tables = self.blocks.meeting(row, column)
        loss = objective.bucket_loss(tables, pool, row, column, first_chunk)
        room = -(-max(part.stop - part.start for part in parts) // _ROOM_STEP) * _ROOM_STEP
        numbers = [(first_chunk, bucket, part.start) for part in parts]
        draws = [
            partial(objective.samples, pool.rows[part], pool.columns[part], number, column)
            for part, number in zip(parts, numbers, strict=True)
        ]
        self._learn(tables, draws, numbers, np.full(len(parts), rate), room)
        return loss

    def _learn(
        self,
        tables: DeviceMeeting,
        draws: Sequence[Callable[[], Samples]],
        numbers: Sequence[Number],
        rates: Array,
        room: int,
    ) -> int:
        """Take the steps of samples, at most `room` of each draw; return how many there were."""
        objective, options, device, total = self.objective, self.objective.options, self.blocks.device, 0
        groups = -(-room // options.shared_negatives)
        step = max(1, _LAUNCH_NUMBERS // (2 * room + groups * options.negatives))
        for low in range(0, len(draws), step):
            some = draws[low : low + step]
            ends = np.zeros((2, len(some), room), objective.id_type)
            negatives = np.zeros((len(some), groups, options.negatives), objective.id_type)
            counts = np.zeros(len(some), np.int64)
            run_each(partial(_draw_into, some, ends, negatives, counts), len(some))
            samples = DeviceSamples(*(torch.from_numpy(part).to(device) for part in (*ends, negatives, counts)))
            of_launch = torch.from_numpy(rates[low : low + step].astype(np.float32)).to(device)
            objective.model.learn_on_device(options, tables, samples, of_launch, objective.noise(numbers[low]))
            total += int(counts.sum())
        return total


def _draw_into(
    draws: Sequence[Callable[[], Samples]], ends: Array, negatives: Array, counts: Array, number: int
) -> None:
    """Draw the samples of a number into arrays of all of a launch; further room stays zero."""
    drawn = draws[number]()
    counts[number] = count = len(drawn.centres)
    ends[0, number, :count], ends[1, number, :count] = drawn.centres, drawn.contexts
    negatives[number, : len(drawn.negatives)] = drawn.negatives
