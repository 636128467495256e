"""The steps of samples on a device, in Triton. Not yet run on a GPU: tested in Triton's interpreter.

Samples and negatives are those that the CPU draws, bit by bit. Steps are taken without locks, so that results are near
the CPU's and differ from run to run.

A grid of one block is trained where all is: walks, pairs and negatives are drawn on the device too, if the graph has
room there beside the tables. Else pools come from the CPU, and blocks stay on the device while there is room.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import torch
from numba import njit
from torch import Tensor

from models.kernels.tables.device_tables import DeviceTable
from models.vectors.base import DeviceMeeting, Samples
from tasks.arrays import Array
from tasks.counter_random import bits
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.train.loaders.samples.pairs import DevicePairs
from tasks.train.strategies.block_grid import Round
from tasks.train.tables.block_files import Key
from tasks.train.tables.grid import Grid
from tasks.train.tables.objective import NEGATIVES, PairLearning
from tasks.train.tables.pools import Pool

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

    def __init__(self, objective: PairLearning, grid: Grid, pairs: DevicePairs | None, blocks: ResidentBlocks) -> None:
        """`pairs`: makes the pairs of a grid of one block; None: there are several, whose pairs come in pools."""
        from tasks.sampling.device.alias_triton import table_tensor

        self.objective, self.grid, self.blocks, self.device = objective, grid, blocks, blocks.device
        self._pairs = pairs
        negatives = objective.negatives
        self._negatives = [table_tensor(negatives.table(block), self.device) for block in range(negatives.num_blocks)]
        options = objective.options
        self._numbers_a_pair = 2 + -(-options.negatives // options.shared_negatives)

    def train_chunks(self, chunks: range, rates: Array) -> tuple[float, int]:
        """Draw and train as many chunks at once as a launch takes."""
        assert self._pairs is not None, "pairs of several blocks come in pools"
        objective, tables = self.objective, self.blocks.meeting(0, 0)
        loss = objective.chunk_loss(tables, chunks.start)
        # One copy for all launches: each of these waits for what the device has in hand.
        keys = torch.from_numpy(negative_keys(objective.seed, chunks)).to(self.device)
        all_rates = torch.from_numpy(np.asarray(rates, np.float32)).to(self.device)
        total = torch.zeros((), dtype=torch.int64, device=self.device)
        step = self._rows_a_launch(objective.loader.room)
        for low in range(0, len(chunks), step):
            part = slice(low, low + step)
            centres, contexts, counts = self._pairs.fill(chunks[part])
            samples = self._samples(centres, contexts, counts, keys[part], 0)
            self._learn(tables, samples, all_rates[part], objective.noise((chunks[low], 0, 0)))
            total += counts.sum()
        return loss, int(total)

    def train_buckets(self, pool: Pool, met: Round, first_chunk: int, rate: float) -> list[float]:
        """Copy a bucket's pairs to the device, and its blocks if they are not there, and train them."""
        return [self._train_bucket(pool, row, column, first_chunk, rate) for row, column in met]

    def _train_bucket(self, pool: Pool, row: int, column: int, first_chunk: int, rate: float) -> float:
        objective, number = self.objective, 1 + row * self.grid.tables.num_blocks + column
        parts = [part for part, _ in objective.parts(pool, row, column)]
        if not parts:
            return 0.0
        tables = self.blocks.meeting(row, column)
        loss = objective.bucket_loss(tables, pool, row, column, first_chunk)
        room = -(-max(part.stop - part.start for part in parts) // _ROOM_STEP) * _ROOM_STEP
        step = self._rows_a_launch(room)
        for low in range(0, len(parts), step):
            some = parts[low : low + step]
            states = [objective.key((first_chunk, number, part.start)) for part in some]
            keys = torch.tensor(states, device=self.device)
            counts = torch.tensor([part.stop - part.start for part in some], device=self.device)
            centres, contexts = _rows(pool, some, room).to(self.device)
            samples = self._samples(centres, contexts, counts, keys, column)
            rates = torch.full((len(some),), rate, device=self.device)
            self._learn(tables, samples, rates, objective.noise((first_chunk, number, some[0].start)))
        return loss

    def _rows_a_launch(self, room: int) -> int:
        """Return how many chunks or parts, with room for so many pairs each, are drawn and trained at once."""
        count = max(1, _LAUNCH_NUMBERS // (room * self._numbers_a_pair))
        # Slices of keys and rates then begin at 16 bytes; Triton compiles kernels once more for others.
        return count // 4 * 4 or count

    def _samples(self, centres: Tensor, contexts: Tensor, counts: Tensor, keys: Tensor, block: int) -> Samples:
        """Draw the negatives of chunks, rows (C, n), in a block of contexts."""
        from tasks.sampling.device.alias_triton import draw_many

        chunks, room = centres.shape
        options = self.objective.options
        drawn = centres.new_empty((chunks, -(-room // options.shared_negatives), options.negatives))
        draw_many(self._negatives[block], keys, drawn.view(chunks, -1))
        return Samples(centres, contexts, drawn, counts)

    def _learn(self, tables: DeviceMeeting, samples: Samples, rates: Tensor, noise: int) -> None:
        self.objective.model.learn_on_device(self.objective.options, tables, samples, rates, noise)


def device_stepper(objective: PairLearning, grid: Grid, device: torch.device, memory: int, room: int) -> DeviceStepper:
    """Return what trains on a device, where tables and graph may take `memory` bytes, and `room` blocks may lie."""
    blocks, pairs = ResidentBlocks(grid, device, room), None
    if grid.tables.num_blocks == 1:
        pairs = objective.loader.on_device(device, memory - grid.tables.num_bytes)
    return DeviceStepper(objective, grid, pairs, blocks)


def negative_keys(seed: int, chunks: range) -> Array:
    """Return `derive_key(seed, NEGATIVES, chunk, 0, 0)` of each chunk: int64 (chunks,)."""
    keys = np.empty(len(chunks), np.int64)
    _fill_keys(derive_key(seed, NEGATIVES), chunks.start, keys)
    return keys


def _rows(pool: Pool, parts: list[slice], room: int) -> Tensor:
    """Return the rows of parts of a pool's pairs, (2, parts, room) of the ids' dtype, filled up with zeros."""
    rows = np.zeros((2, len(parts), room), pool.rows.dtype)
    for number, part in enumerate(parts):
        rows[0, number, : part.stop - part.start] = pool.rows[part]
        rows[1, number, : part.stop - part.start] = pool.columns[part]
    return torch.from_numpy(rows)


@njit(cache=True)
def _fill_keys(key, first, keys):  # type: ignore[no-untyped-def]
    for i in range(len(keys)):
        last = np.uint64(key)
        for number, part in ((2, first + i), (3, 0), (4, 0)):
            last = bits(last, number, part) >> np.uint64(1)
        keys[i] = last
