"""Options of the strategies, apart from their code: recipes are checked without what they compute with."""

from __future__ import annotations

from pydantic import Field

from configs.base import ComponentConfig
from configs.registry import STRATEGIES


@STRATEGIES.options("data_parallel", "data_parallel")
class DataParallelConfig(ComponentConfig):
    """An epoch's seeds (or clusters) are split over ranks; gradients are averaged (DistributedDataParallel)."""


@STRATEGIES.options("parallel_epochs", "parallel_epochs")
class ParallelEpochsConfig(ComponentConfig):
    """W ranks take W epochs of the data at once, each shuffled or clustered by itself; gradients are averaged."""


@STRATEGIES.options("partition_parallel", "partition_parallel")
class PartitionParallelConfig(ComponentConfig):
    """A rank holds its parts of the partition and a halo around them, and trains on the seeds of its parts only."""

    halo_hops: int = Field(default=1, ge=0, le=16)
    """Hops of in-neighbours around a rank's parts that it holds; 0: edges between ranks' parts are left out."""
