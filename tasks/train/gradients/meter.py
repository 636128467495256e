"""What an epoch's batches were like: sums of losses, seeds, edges and seconds."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from configs.errors import RecipeError
from tasks.train.state.journal import Progress

# Reading a loss waits for the GPU, which then has nothing to do until the next batch is on its way.
_UNREAD_ON_GPU = 16


class Meter:
    """Adds batches up in the progress's totals."""

    def __init__(self, progress: Progress, learning_rate: float) -> None:
        """`learning_rate` is named where the loss is no number any more."""
        self.progress, self.learning_rate = progress, learning_rate
        self.loss = math.nan
        """Of the last batch that was read."""
        self.counted_edges: Tensor | None = None
        """int64 (1,): edges of all batches so far, where a GPU counts them; those given to `add` come on top."""
        self._edges_read = 0
        self._unread: list[tuple[Tensor, int]] = []

    def add(self, loss: Tensor, num_seeds: int, num_edges: int = 0) -> None:
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
        if self.counted_edges is not None:
            edges = int(self.counted_edges)
            self.progress.epoch_totals[2] += edges - self._edges_read
            self._edges_read = edges
