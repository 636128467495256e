"""All batches that one rank takes in a run, in a row: which has which number, and what they came to."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from configs.errors import RecipeError
from configs.training import TrainConfig
from models.block import StepBatch
from tasks.sampling.neighborhoods.neighbors import derive_key, shuffled
from tasks.train.labels.balance import Balance
from tasks.train.loaders.base import Loader
from tasks.train.state.journal import Progress
from tasks.train.strategies.base import Strategy

_SHUFFLE, _SAMPLE, _DROPOUT, _BALANCE = 1, 2, 3, 4  # purposes that keys are drawn for
_REHEARSED = 32
# Reading a loss waits for the GPU, which then has nothing to do until the next batch is on its way.
_UNREAD_ON_GPU = 16


class Batches:
    """Makes a rank's batch of any number.

    A batch depends on the seed, the epoch, the step and the rank, and on no batch before it: a run that goes on from a
    checkpoint sees what one that was left alone sees, and threads may make batches side by side.
    """

    def __init__(
        self, loader: Loader, strategy: Strategy, train: TrainConfig, seed: int, balance: Balance | None = None
    ) -> None:
        """Count the batches of a round; `balance` chooses their seeds.

        Raises RecipeError: more batches are to be accumulated than a round has.
        """
        self.loader, self.strategy, self.seed, self._balance = loader, strategy, seed, balance
        self._rest: Iterator[StepBatch] = iter(())
        self._next = -1
        """Number of the batch that comes first in `_rest`."""
        # What an epoch consists of: seeds in an order of their own, or the batches of a loader that makes its own.
        self._own = loader.num_batches is not None
        self._count = loader.num_seeds if loader.num_batches is None else loader.num_batches
        size = 1 if self._own else loader.batch_size
        self.batches_per_round = 1 if loader.whole_split else strategy.steps(self._count, size)
        """Batches that this rank (and every other) takes in a round."""
        self.rounds = train.epochs // strategy.epochs_per_round
        if train.accumulate_steps > self.batches_per_round:
            raise RecipeError(
                f"train.accumulate_steps={train.accumulate_steps} is more than the {self.batches_per_round} "
                "batches of an epoch on each rank; lower it, or train.loader.batch_size"
            )

    @property
    def total(self) -> int:
        """Batches of the run."""
        return self.rounds * self.batches_per_round

    def rehearse(self) -> None:
        """Let the loader see some of the run's first batches, all ranks together."""
        together = self.strategy.exchange_batches
        count = min(self.total, max(together, _REHEARSED))
        requests = [self.request(number) for number in range(count)]
        self.loader.rehearse([requests[start : start + together] for start in range(0, count, together)])

    def make(self, number: int) -> StepBatch:
        """Make batch `number` of the run, in CPU memory.

        Where some are made at once (`Strategy.exchange_batches`) only one thread may ask, in ascending order.
        """
        together = self.strategy.exchange_batches
        if together == 1:
            return next(self._make([number]))
        if number != self._next or number % together == 0:
            self._rest = self._make(range(number, min(number - number % together + together, self.total)))
        self._next = number + 1
        return next(self._rest)

    def _make(self, numbers: Sequence[int]) -> Iterator[StepBatch]:
        if not self._own:
            return map(self.strategy.finish, self.loader.batches([self.request(number) for number in numbers]))
        return (
            self.strategy.finish(self.loader.epoch_batch(epoch, int(places[0]), self._key(epoch, step, _SAMPLE)))
            for epoch, step, places in map(self._place, numbers)
        )

    def request(self, number: int) -> tuple[NDArray[np.int64], int]:
        """Return what `Loader.batch` is given for batch `number`: positions among the seeds, and the key."""
        epoch, step, places = self._place(number)
        order = derive_key(self.seed, epoch, 0, 0, _SHUFFLE)
        positions = shuffled(self._count, order, places)
        if self._balance is not None:
            positions = self._balance.positions(positions, self._key(epoch, step, _BALANCE))
        return positions, self._key(epoch, step, _SAMPLE)

    def _place(self, number: int) -> tuple[int, int, NDArray[np.int64]]:
        """Return the epoch of a batch, its step in it, and its places in the epoch's order."""
        round_number, step = divmod(number, self.batches_per_round)
        places = self.strategy.share(self._count, step, self.batches_per_round)
        return self.strategy.epoch(round_number), step, places

    def dropout_key(self, number: int) -> int:
        """Return what dropout is drawn from while batch `number` is trained on."""
        round_number, step = divmod(number, self.batches_per_round)
        return self._key(self.strategy.epoch(round_number), step, _DROPOUT)

    def _key(self, epoch: int, step: int, purpose: int) -> int:
        return derive_key(self.seed, epoch, step, self.strategy.ranks.rank, purpose)


class Meter:
    """Adds batches up in the progress's totals."""

    def __init__(self, progress: Progress, learning_rate: float) -> None:
        """`learning_rate` is named where the loss is no number any more."""
        self.progress, self.learning_rate = progress, learning_rate
        self.loss = math.nan
        """Of the last batch that was read."""
        self._unread: list[tuple[Tensor, int]] = []

    def add(self, loss: Tensor, num_seeds: int, num_edges: int) -> None:
        """Count a batch and its mean loss."""
        totals = self.progress.epoch_totals
        totals[1] += num_seeds
        totals[2] += num_edges
        self._unread.append((loss, num_seeds))
        if not loss.is_cuda or len(self._unread) == _UNREAD_ON_GPU:
            self.read()

    def read(self) -> None:
        """Bring the totals up to date. Raises RecipeError for a training that diverged."""
        if not self._unread:
            return
        values = torch.stack([loss for loss, _ in self._unread]).tolist()
        for value, (_, num_seeds) in zip(values, self._unread, strict=True):
            if not math.isfinite(value):
                raise RecipeError(
                    f"the training diverged: the loss is {value} at step {self.progress.step + 1} (epoch "
                    f"{self.progress.epoch + 1}); lower train.learning_rate (now {self.learning_rate:g}) or set "
                    "train.clip_norm"
                )
            self.loss = value
            self.progress.epoch_totals[0] += value * num_seeds
        self._unread.clear()
