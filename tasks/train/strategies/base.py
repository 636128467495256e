"""How ranks share the work: what a rank reads, what it takes in a step, and how gradients meet.

A run is a number of rounds; in a round every rank takes the same number of batches, and after it the model is
validated. A strategy says which graph a rank's loader reads, which epoch of the data a rank is in, and which of the
epoch's items (seeds, or batches of a loader that makes its own) it takes in a step.

Strategies import no torch with their files: the stage asks one whether it fits before any worker starts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from configs.base import ComponentConfig
from configs.errors import RecipeError
from configs.registry import STRATEGIES
from configs.training import TrainConfig
from tasks.processes.children import MACHINE
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import PartitionManifest

if TYPE_CHECKING:
    from torch import nn

    from models.block import StepBatch
    from tasks.sampling.parts.ranges import Ranges
    from tasks.sampling.rows.features import Rows


@dataclass(frozen=True)
class Ranks:
    """The processes of a job."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Number among the ranks of this machine."""
    local_size: int = 1
    """Ranks of this machine; the ranks are numbered machine by machine."""
    machine: int = 0
    """Number of this machine."""
    machines: int = 1
    """Machines of the job."""

    @classmethod
    def here(cls) -> Ranks:
        """Return which of the processes that were started together this one is; one that was started alone is all."""
        rank, local_rank = (int(os.environ.get(name, "0")) for name in ("RANK", "LOCAL_RANK"))
        world_size, local_size = (int(os.environ.get(name, "1")) for name in ("WORLD_SIZE", "LOCAL_WORLD_SIZE"))
        machine, machines = map(int, os.environ.get(MACHINE, "0/1").split("/"))
        return cls(rank, world_size, local_rank, local_size, machine, machines)

    @property
    def of_machine(self) -> range:
        """The ranks of this machine."""
        first = self.rank - self.local_rank
        return range(first, first + self.local_size)

    @property
    def is_main(self) -> bool:
        """Whether this process evaluates, and its machine's checkpoint counts."""
        return self.rank == 0


class Strategy:
    """Base of the strategies: every rank reads the whole graph, ranks split an epoch's items, gradients are averaged.

    All ranks must come to the same `rounds` and `steps`, else collectives would wait for ever.
    """

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig
    epochs_per_round = 1
    """Epochs of the data that all ranks together go through in a round."""
    ranges: Ranges | None = None
    """Which rank holds which nodes, where no rank holds all; once the graph is open."""
    rows: Rows = "stored"
    """What a rank holds numeric features of nodes as."""
    makes_together = False
    """Whether all ranks make their batches together, so that each needs the others for its own."""
    exchange_batches = 1
    """Batches that the loader is asked for at once."""

    def __init__(self, config: ComponentConfig, ranks: Ranks) -> None:
        self.config: Any = config
        self.ranks = ranks

    def check_options(self, train: TrainConfig, loader: str | None, num_parts: int) -> None:
        """Raise RecipeError for options, a loader (by name) or a number of parts that it cannot work with.

        Asked before the graph is prepared, which may take hours, as the first of so many ranks. `loader`: None where
        only the graph will tell which one it is.
        """

    def check(self, train: TrainConfig, loader: str, manifest: PartitionManifest) -> None:
        """Raise RecipeError where the strategy cannot work with a graph, or as `check_options` does.

        Asked before any worker starts.
        """
        self.check_options(train, loader, manifest.num_parts)

    def open(self, store: GraphStore) -> GraphStore:
        """Return the graph that this rank's loader reads."""
        return store

    def epoch(self, round_number: int) -> int:
        """Return which epoch of the data this rank is in: epochs are shuffled and clustered by their numbers."""
        return round_number

    def steps(self, count: int, batch_size: int) -> int:
        """Return the batches that each rank takes in a round: no rank gets more than `batch_size` of `count` items."""
        return max(1, -(-count // (batch_size * self.ranks.world_size)))

    def share(self, count: int, step: int, steps: int) -> NDArray[np.int64]:
        """Return which of an epoch's `count` items this rank takes in a step: places in the epoch's order.

        The epoch is cut into steps whose sizes differ by one at most: a tiny last batch would upset batch norm. Ranks
        get equal shares, so that the mean of their gradients is the batch's; a share wraps round the end where the
        items do not divide.
        """
        start, stop = count * step // steps, count * (step + 1) // steps
        size = max(1, -(-(stop - start) // self.ranks.world_size))
        first = start + self.ranks.rank * size
        return np.arange(first, first + size, dtype=np.int64) % count

    def finish(self, batch: StepBatch) -> StepBatch:
        """Return a batch as the model wants it: the ids of its input nodes are those of the whole graph."""
        return batch

    def wrap(self, model: nn.Module) -> nn.Module:
        """Return the model so that its backward pass averages the ranks' gradients, where there are several.

        Batch statistics are left alone here: the loop averages them after each step.
        """
        if self.ranks.world_size == 1:
            return model
        from tasks.train.strategies.averaging import averaging

        return averaging(model)


@STRATEGIES.register("data_parallel")
class DataParallel(Strategy):
    """Learns as one rank with batches `world_size` times as large."""


@STRATEGIES.register("parallel_epochs")
class ParallelEpochs(Strategy):
    """Rank r is in epoch i * W + r of the data in round i, so that no two ranks see the same clusters.

    Made for loaders that cut the whole graph at random, such as random_partition. One rank sees what it would without
    this strategy. `train.epochs` counts epochs of the data: a run takes epochs / W rounds, a W-th of the steps. Raise
    the learning rate for it (train.lr_scaling, with train.schedule.warmup_steps).
    """

    def __init__(self, config: ComponentConfig, ranks: Ranks) -> None:
        super().__init__(config, ranks)
        self.epochs_per_round = ranks.world_size

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


class PartStrategy(Strategy):
    """Base of strategies whose ranks take the seeds of their own parts of the partition.

    Ranks take equally many steps and seeds: a part with fewer seeds than the largest starts its order over.
    """

    loaders: ClassVar[tuple[str, ...]] = ()
    """Names of those that it works with."""
    largest = 0
    """Seeds of the rank that has most, once the graph is open; 0: all ranks share one order."""

    def check_options(self, train: TrainConfig, loader: str | None, num_parts: int) -> None:
        """Refuse a partition that the ranks cannot share, and loaders that want the whole graph."""
        name, world_size = self.config.name, self.ranks.world_size
        if loader is not None and loader not in self.loaders:
            raise RecipeError(
                f"train.strategy={name} works with the loaders {', '.join(self.loaders)} and this is {loader}; choose "
                "one of them or train.strategy=data_parallel"
            )
        if num_parts % world_size:
            raise RecipeError(
                f"train.strategy={name} gives each of the {world_size} ranks equally many parts and the partition has "
                f"{num_parts}; set partition.num_parts={world_size} or a multiple"
            )

    def steps(self, count: int, batch_size: int) -> int:
        """As many as the rank with the most seeds needs."""
        return max(1, -(-self.largest // batch_size)) if self.largest else super().steps(count, batch_size)

    def share(self, count: int, step: int, steps: int) -> NDArray[np.int64]:
        """Cut the largest rank's seeds into steps; a rank with fewer starts its order over."""
        if not self.largest:
            return super().share(count, step, steps)
        return np.arange(self.largest * step // steps, self.largest * (step + 1) // steps, dtype=np.int64) % count
