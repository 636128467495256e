"""The training of tables on a device: walks, pairs and negatives are drawn where the rows are. Not yet run on a GPU.

Chunks have the pairs and the negatives that the CPU's trainer draws for them, bit by bit. Their steps are taken without
locks, so that results are near the CPU's and differ from run to run.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from models.kernels.device_tables import DeviceTable
from models.kernels.row_tables import RowTable
from models.vectors import DeviceMeeting, SampledModel
from tasks.arrays import Array
from tasks.counter_random import bits
from tasks.sampling.neighbors import derive_key
from tasks.train.loaders.pairs import PairLoader
from tasks.train.tables.grid import Grid, Negatives
from tasks.train.tables.pools import Pool

NEGATIVES, ROUNDING = 2, 3
"""Purposes that keys are drawn for, those of the trainer."""
PART_PAIRS = 1 << 14
"""Pairs of a bucket whose negatives have a key of their own, as in the trainer."""
_LAUNCH_PAIRS = 1 << 22
"""Room for pairs that are drawn and trained at once: about 150 MB with 5 negatives each. Not tuned."""


class ResidentBlocks:
    """Blocks of a grid's tables on a device: all of them, or those that were asked for last."""

    def __init__(self, grid: Grid, device: torch.device, most: int | None = None) -> None:
        """`most`: blocks that the device holds; None: all. Blocks that make room go back into the grid."""
        self.grid, self.device, self.most = grid, device, most
        self._held: OrderedDict[int, tuple[RowTable, DeviceTable]] = OrderedDict()

    def meeting(self, row: int, column: int) -> DeviceMeeting:
        """Return `Grid.meeting`'s tables, on the device."""
        tables = self.grid.meeting(row, column)
        wanted = {id(table): table for pair in tables.values() for table in pair}
        assert self.most is None or len(wanted) <= self.most, f"{len(wanted)} blocks meet, of {self.most} at most"
        for name in wanted:
            if name in self._held:
                self._held.move_to_end(name)
        missing = [table for name, table in wanted.items() if name not in self._held]
        while self.most is not None and self._held and len(self._held) + len(missing) > self.most:
            table, copy = self._held.popitem(last=False)[1]
            copy.copy_to(table)
        for table in missing:
            self._held[id(table)] = table, DeviceTable.of(table, self.device)
        return {name: (self._held[id(own)][1], self._held[id(others)][1]) for name, (own, others) in tables.items()}

    def copy_back(self) -> None:
        """Write the rows into the grid: before they are saved or read there."""
        for table, copy in self._held.values():
            copy.copy_to(table)


@dataclass(frozen=True)
class Objective:
    """What is learnt, and by which random numbers."""

    model: type[SampledModel]
    options: Any
    """The model's."""
    seed: int


class DeviceTraining:
    """Draws and trains the pairs of a grid on a device."""

    def __init__(
        self,
        loader: PairLoader,
        grid: Grid,
        negatives: Negatives,
        objective: Objective,
        device: torch.device,
        most_blocks: int | None = None,
    ) -> None:
        """Copy to the device what is drawn from; tables follow when they are needed, `most_blocks` of them."""
        from tasks.sampling.device.alias_triton import table_tensor

        self.grid, self.objective, self.device = grid, objective, device
        self.blocks = ResidentBlocks(grid, device, most_blocks)
        self._pairs = loader.on_device(device)
        chunks = max(1, _LAUNCH_PAIRS // loader.room)
        # Slices of keys and rates then begin at 16 bytes; Triton compiles kernels once more for others.
        self._chunks_a_launch = chunks // 4 * 4 or chunks
        self._negatives = [table_tensor(table, device) for table in negatives.tables]

    def train_chunks(self, chunks: range, rates: Array) -> int:
        """Draw the chunks of a grid of one block and take their steps.

        Args:
            chunks: numbers of chunks, one after another.
            rates: learning rate of each, float32 (chunks,).

        Returns the number of pairs.
        """
        tables, seed = self.blocks.meeting(0, 0), self.objective.seed
        # One copy for all launches: each of these waits for what the device has in hand.
        keys = torch.from_numpy(negative_keys(seed, chunks)).to(self.device)
        all_rates = torch.from_numpy(np.asarray(rates, np.float32)).to(self.device)
        total = torch.zeros((), dtype=torch.int64, device=self.device)
        for low in range(0, len(chunks), self._chunks_a_launch):
            part = slice(low, low + self._chunks_a_launch)
            centres, contexts, counts = self._pairs.fill(chunks[part])
            noise = derive_key(seed, ROUNDING, chunks[low], 0, 0)
            self._learn(tables, centres, contexts, counts, 0, keys[part], all_rates[part], noise)
            total += counts.sum()
        return int(total)

    def train_bucket(self, pool: Pool, row: int, column: int, first_chunk: int, rate: float) -> None:
        """Take the steps of the pairs of block `row` with block `column` of a pool that begins at a chunk."""
        begin, end = int(pool.starts[row, column]), int(pool.ends[row, column])
        if begin == end:
            return
        tables, number, seed = (
            self.blocks.meeting(row, column),
            1 + row * self.grid.num_blocks + column,
            self.objective.seed,
        )
        lows = range(begin, end, PART_PAIRS)
        states = [derive_key(seed, NEGATIVES, first_chunk, number, low) for low in lows]
        counts = torch.tensor([min(PART_PAIRS, end - low) for low in lows], device=self.device)
        keys, rates = torch.tensor(states, device=self.device), torch.full((len(lows),), rate, device=self.device)
        centres, contexts = (self._parts(ends[begin:end]) for ends in (pool.rows, pool.columns))
        parts_a_launch = _LAUNCH_PAIRS // PART_PAIRS
        for low in range(0, len(lows), parts_a_launch):
            part = slice(low, low + parts_a_launch)
            noise = derive_key(seed, ROUNDING, first_chunk, number, lows[low])
            self._learn(tables, centres[part], contexts[part], counts[part], column, keys[part], rates[part], noise)

    def _parts(self, rows: Array) -> Tensor:
        """Return rows on the device, in parts: (parts, PART_PAIRS), the last one filled up with zeros."""
        filling = -len(rows) % PART_PAIRS
        moved = torch.from_numpy(rows).to(self.device)
        return torch.nn.functional.pad(moved, (0, filling)).view(-1, PART_PAIRS)

    def _learn(
        self,
        tables: DeviceMeeting,
        centres: Tensor,
        contexts: Tensor,
        counts: Tensor,
        block: int,
        keys: Tensor,
        rates: Tensor,
        noise: int,
    ) -> None:
        """Draw the negatives of chunks in a block of contexts, and take the steps."""
        from tasks.sampling.device.alias_triton import draw_many

        chunks, room = centres.shape
        options = self.objective.options
        groups = -(-room // options.shared_negatives)
        drawn = centres.new_empty((chunks, groups, options.negatives))
        draw_many(self._negatives[block], keys, drawn.view(chunks, -1))
        self.objective.model.learn_on_device(options, tables, centres, contexts, drawn, counts, rates, noise)


def negative_keys(seed: int, chunks: range) -> Array:
    """Return `derive_key(seed, NEGATIVES, chunk, 0, 0)` of each chunk: int64 (chunks,)."""
    keys = np.empty(len(chunks), np.int64)
    _fill_keys(derive_key(seed, NEGATIVES), chunks.start, keys)
    return keys


@njit(cache=True)
def _fill_keys(key, first, keys):  # type: ignore[no-untyped-def]
    for i in range(len(keys)):
        last = np.uint64(key)
        for number, part in ((2, first + i), (3, 0), (4, 0)):
            last = bits(last, number, part) >> np.uint64(1)
        keys[i] = last
