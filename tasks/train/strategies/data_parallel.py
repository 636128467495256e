"""Every rank holds the whole model and handles its share of each step's seeds."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from configs.base import ComponentConfig
from configs.registry import STRATEGIES
from tasks.train.strategies.base import Strategy


@STRATEGIES.register("data_parallel")
class DataParallel(Strategy):
    """Seeds are split over ranks, gradients averaged (DistributedDataParallel)."""

    class Config(ComponentConfig):
        """No options."""

    def steps(self, num_seeds: int, batch_size: int) -> int:
        """As many steps as no rank needs more than batch_size seeds in one."""
        return max(1, -(-num_seeds // (batch_size * self.ranks.world_size)))

    def positions(self, num_seeds: int, step: int, steps: int) -> NDArray[np.int64]:
        """Cut the epoch into steps whose sizes differ by one at most: a tiny last batch would upset batch norm.

        Ranks get equal shares, so that the mean of their gradients is the batch's; a share wraps round the end where
        the seeds do not divide.
        """
        start, stop = num_seeds * step // steps, num_seeds * (step + 1) // steps
        share = max(1, -(-(stop - start) // self.ranks.world_size))
        first = start + self.ranks.rank * share
        return np.arange(first, first + share, dtype=np.int64) % num_seeds

    def wrap(self, model: nn.Module) -> nn.Module:
        """Join the ranks' gradients where there are several."""
        if self.ranks.world_size == 1:
            return model
        on_gpu = next(model.parameters()).is_cuda
        devices = [torch.cuda.current_device()] if on_gpu else None
        return nn.parallel.DistributedDataParallel(model, device_ids=devices)
