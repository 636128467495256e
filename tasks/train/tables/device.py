"""The steps of pairs on a device, in Triton. Not yet run on a GPU: tested in Triton's interpreter.

The CPU's threads draw pairs and negatives, and the device learns from many chunks at once; the tables must have room
there. Steps are taken without locks, so that results are near the CPU's and differ from run to run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from configs.errors import RecipeError
from configs.families.row_training import BlockTrainConfig
from models.kernels.backends import has_triton
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.threads import num_threads, run_each
from models.vectors.base import DeviceMeeting, SampledModel, Samples
from tasks.arrays import Array
from tasks.processes.device import choose_device
from tasks.train.strategies.block_grid import Round
from tasks.train.tables.grid import Grid, Key
from tasks.train.tables.objective import Number, PairLearning
from tasks.train.tables.pools import Pool, drawn_chunk

_LAUNCH_NUMBERS = 1 << 25
"""Of nodes that are drawn and trained at once: 4 million pairs with 5 negatives each. Not tuned."""
_ROOM_STEP = 256
"""Room for a part of a bucket is a multiple of it: all begin at 16 bytes then; for others Triton compiles once more."""


class ResidentBlocks:
    """Copies of a grid's blocks on a device, which has room for all: kept until the grid asks for one."""

    def __init__(self, grid: Grid, device: torch.device) -> None:
        self.grid, self.device = grid, device
        self._held: dict[Key, DeviceTable] = {}
        grid.take_back = self.give_back

    def meeting(self, row: int, column: int) -> DeviceMeeting:
        """Return `Grid.meeting`'s blocks, which are loaded to be changed, on the device."""
        for key in self.grid.keys(row, column):
            if key not in self._held:
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

        def draw(chunk: int) -> Samples:
            centres, contexts = drawn_chunk(objective.loader, chunk, objective.id_type)
            return objective.samples(centres, contexts, (chunk, 0, 0), 0)

        draws = [partial(draw, chunk) for chunk in chunks]
        numbers = [(chunk, 0, 0) for chunk in chunks]
        return loss, self._learn(tables, draws, numbers, rates, objective.loader.room)

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
            samples = Samples(*(torch.from_numpy(part).to(device) for part in (*ends, negatives, counts)))
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


_SHARE = 0.8
"""Of a device's free memory, for tables: the rest is for what is drawn at a time."""


@dataclass(frozen=True)
class RankDevice:
    """Where a rank trains."""

    device: torch.device
    memory: int | None = None
    """Bytes that tables may take on the device; None: it is the CPU, whose threads take the steps."""

    @classmethod
    def on_gpu(cls, device: torch.device) -> RankDevice:
        """Return a GPU, as much of whose memory as is free now."""
        return cls(device, int(_SHARE * torch.cuda.mem_get_info(device)[0]))

    @property
    def workers(self) -> int:
        """Pairs of blocks that are trained side by side."""
        return num_threads() if self.memory is None else 1


def why_no_gpu(model: type[SampledModel]) -> str | None:
    """Return why a model's pairs cannot be learnt on GPUs; None: they can."""
    if model.learn_on_device.__func__ is SampledModel.learn_on_device.__func__:  # type: ignore[attr-defined]
        return "this model learns on CPUs only"
    return None if has_triton() else "tables are trained there by Triton, which is not installed"


def choose_place(train: BlockTrainConfig, local_rank: int, why_not: str | None = None) -> RankDevice:
    """Return where a rank trains: on a GPU only where `cuda` is asked for, as this path has not run on one yet.

    `why_not`: why it cannot be a GPU; None: it can.

    Raises RecipeError: as `choose_device` does; or `cuda` is wanted and cannot be.
    """
    if train.device == "auto" and not train.auto_takes_gpu:
        return RankDevice(torch.device("cpu"))
    device = choose_device(train.device, local_rank)
    if device.type == "cpu":
        return RankDevice(device)
    if why_not:
        raise RecipeError(f"train.device=cuda: {why_not}; set train.device=cpu")
    return RankDevice.on_gpu(device)
