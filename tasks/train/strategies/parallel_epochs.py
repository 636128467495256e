"""Every rank goes through an epoch of its own, as in Distributed DeepGCNs (whole-graph random clustering, DDP)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from configs.errors import RecipeError
from configs.registry import STRATEGIES
from configs.training import TrainConfig
from tasks.train.strategies.base import Strategy


@STRATEGIES.register("parallel_epochs")
class ParallelEpochs(Strategy):
    """Rank r is in epoch i * W + r of the data in round i, so that no two ranks see the same clusters.

    Made for loaders that cut the whole graph at random, such as random_partition. One rank sees what it would without
    this strategy. `train.epochs` counts epochs of the data: a run takes epochs / W rounds, a W-th of the steps. Raise
    the learning rate for it (train.lr_scaling, with train.schedule.warmup_steps).
    """

    @property
    def epochs_per_round(self) -> int:
        """One a rank."""
        return self.ranks.world_size

    def check_options(self, train: TrainConfig, loader: str | None, num_parts: int) -> None:
        """Refuse epochs that do not divide, and batches that are the same in every epoch."""
        world_size = self.ranks.world_size
        if train.epochs % world_size:
            raise RecipeError(
                f"train.strategy=parallel_epochs trains {world_size} epochs at once, one a rank, and train.epochs="
                f"{train.epochs} is no multiple; take {-(-train.epochs // world_size) * world_size}"
            )
        if loader == "full":
            raise RecipeError(
                "train.strategy=parallel_epochs with the full loader would have all ranks do the same; "
                "take train.loader=random_partition or train.strategy=data_parallel"
            )

    def epoch(self, round_number: int) -> int:
        """Each rank is in an epoch that no other is in, ever."""
        return round_number * self.ranks.world_size + self.ranks.rank

    def steps(self, count: int, batch_size: int) -> int:
        """Those of a whole epoch."""
        return max(1, -(-count // batch_size))

    def share(self, count: int, step: int, steps: int) -> NDArray[np.int64]:
        """All of a step's items."""
        return np.arange(count * step // steps, count * (step + 1) // steps, dtype=np.int64)
