"""Options of the strategies, apart from their code: recipes are checked without what they compute with."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from configs.base import ComponentConfig
from configs.registry import STRATEGIES
from configs.values.sizes import number_of_bytes

LEAST_ROWS = 16
"""Of a block. Negatives are drawn from the block of the positive's context: with few rows there most are near the
centre themselves, with one each is the context itself, and nothing is learnt. Measured on a planted graph of 300 nodes
in four classes, mean accuracy of three seeds: over walks 0.81 with 64 and with 16 rows, 0.79 with 8 and 0.74 with 4;
over edges 0.73, 0.76, 0.69 and 0.65."""


def most_blocks(num_nodes: int) -> int:
    """Return into how many blocks tables of a row a node can be cut."""
    return max(1, num_nodes // LEAST_ROWS)


class StrategyConfig(ComponentConfig):
    """What every strategy says of itself."""

    families: ClassVar[tuple[str, ...]] = ("gnn",)
    """Families of models whose trainings it shares out."""
    evaluates_together: ClassVar[bool] = False
    """Whether all ranks evaluate what they have trained."""


@STRATEGIES.options("data_parallel", "base")
class DataParallelConfig(StrategyConfig):
    """An epoch's seeds (or clusters) are split over ranks; gradients are averaged (DistributedDataParallel)."""

    families: ClassVar[tuple[str, ...]] = ("gnn", "relational")


@STRATEGIES.options("parallel_epochs", "base")
class ParallelEpochsConfig(StrategyConfig):
    """W ranks take W epochs of the data at once, each shuffled or clustered by itself; gradients are averaged."""

    families: ClassVar[tuple[str, ...]] = ("gnn", "relational")


@STRATEGIES.options("partition_parallel", "partition_parallel")
class PartitionParallelConfig(StrategyConfig):
    """A rank holds its parts of the partition and a halo around them, and trains on the seeds of its parts only."""

    halo_hops: int = Field(default=1, ge=0, le=16)
    """Hops of in-neighbours around a rank's parts that it holds; 0: edges between ranks' parts are left out."""


@STRATEGIES.options("partitioned", "partitioned")
class PartitionedConfig(StrategyConfig):
    """A machine holds its parts of the graph and nothing else; ranks fetch neighbours and features from each other."""

    seeds: Literal["own", "shuffled"] = "own"
    """Which seeds a rank takes: those of its own parts, an order of their own for each rank, or its share of all seeds
    in one order, as with data_parallel, whose batches these are to the bit. own fetches less from other machines."""
    exchange_batches: int = Field(default=16, ge=1, le=4096)
    """Batches that are sampled together: messages between ranks are as many times fewer, and a row that several of them
    want travels once."""
    cache: Annotated[float, BeforeValidator(number_of_bytes)] | None = Field(default=None, ge=0, le=1e15)
    """Memory of a rank for the rows of other machines that its batches read most, in bytes or as `500MB`; null: an
    eighth of what its own rows take."""

    rows: Literal["stored", "float16", "bfloat16", "int8"] = "stored"
    """What ranks hold numeric features of nodes as and send to each other: as they are stored, or in fewer bits; int8
    has a scale for each row. Validation reads them as they are stored."""
    evaluates_together: ClassVar[bool] = True
    runtime_fields: ClassVar[frozenset[str]] = frozenset({"exchange_batches", "cache"})


@STRATEGIES.options("block_grid", "block_grid")
class BlockGridConfig(StrategyConfig):
    """Tables in blocks of rows: each worker trains a pair of blocks that no other touches (arXiv:1903.00757)."""

    name: str = "block_grid"
    families: ClassVar[tuple[str, ...]] = ("table", "layout", "knowledge")

    blocks: int | None = Field(default=None, ge=1, le=1_000_000)
    """Blocks of each table, of 16 rows at least; null: 1 where one process trains it in memory, else what ranks and
    memory ask for. With one block threads write to the same rows without locks, which is fastest and not the same from
    run to run; with more, runs are equal to the bit."""
    memory: Annotated[float, BeforeValidator(number_of_bytes)] | None = Field(default=None, ge=1, le=1e15)
    """Memory that the tables may take on a rank, in bytes or as `500MB`: blocks that have no room lie in files beside
    the checkpoint; null: about half of what the machine has free."""
    pool: float | None = Field(default=None, ge=1, le=1e12)
    """Positive samples that are drawn, sorted by block and trained at a time; null: by the graph's size."""
