"""What `null` in a recipe comes to on a graph: how many samples, cut into which pools, and tables cut into blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from configs.errors import RecipeError
from configs.families.row_training import BlockTrainConfig, LayoutTrainConfig, TableTrainConfig
from configs.values.sizes import in_words
from models.kernels.tables.row_layout import Precision, UpdateRule, row_bytes
from models.vectors.configs import Pairing
from tasks.processes.memory import available_bytes
from tasks.sizes import PROCESS_BYTES
from tasks.storage.manifests import GraphManifest
from tasks.train.strategies.configs import most_blocks

if TYPE_CHECKING:
    from tasks.train.strategies.block_grid import BlockGrid

_POOLS = 500
"""Of a training: with several blocks, how often all of them are gone through."""
_POOLS_BEYOND_MEMORY = 10
"""The same where all blocks are read and written each time."""
_SMALL_SAMPLES = 300_000_000
_LEAST_PAIRS, _MOST_PAIRS = 1 << 16, 1 << 30
_TABLES_SHARE = 0.5
"""Of the memory that is free."""


@dataclass(frozen=True)
class Settings:
    """Numbers of a training."""

    num_blocks: int
    total_chunks: int
    chunks_a_pool: int

    @property
    def num_pools(self) -> int:
        """Pools of the training: its steps."""
        return -(-self.total_chunks // self.chunks_a_pool)


def tables_bytes(train: BlockTrainConfig, pairings: Sequence[Pairing], num_nodes: int) -> int:
    """Return a training's peak memory on this machine: tables and vectors made of them, or what tables may take."""
    rule = UpdateRule(train.optimizer)
    tables = TableSizes.of(pairings, num_nodes, train.precision, rule).all_tables
    memory = train.num_ranks * table_memory(train, available_bytes())
    in_memory = tables + 4 * sum(pairing.width for pairing in pairings) * num_nodes
    return 2 * PROCESS_BYTES * train.num_ranks + (in_memory if tables <= memory else memory)


@dataclass(frozen=True)
class TableSizes:
    """Bytes of a training's tables."""

    all_tables: int
    """Of all rows together."""
    largest: int
    """Of the largest table's rows."""
    keys: int
    """Blocks that a pair of blocks meets in, at most."""
    num_rows: int
    """Of each table: one a node."""

    @property
    def most_blocks(self) -> int:
        """Blocks into which a table can be cut."""
        return most_blocks(self.num_rows)

    @classmethod
    def of(cls, pairings: Sequence[Pairing], num_nodes: int, precision: Precision, rule: UpdateRule) -> TableSizes:
        """Measure tables of so many rows."""
        rows = [row_bytes(pairing.width, precision, rule) * num_nodes for pairing in pairings]
        tables = [size * (1 if pairing.shared else 2) for size, pairing in zip(rows, pairings, strict=True)]
        return cls(sum(tables), max(rows), 2 * len(rows), num_nodes)


def usual_samples(manifest: GraphManifest) -> float:
    """Return the positive samples of a training whose recipe does not say.

    2,000 a node and 200 an edge at least; on small graphs, where that takes a minute, 400 an edge: on BlogCatalog
    (668 k directed edges) fewer cost F1.
    """
    small = min(400 * manifest.num_edges, _SMALL_SAMPLES)
    return float(max(2000 * manifest.num_nodes, 200 * manifest.num_edges, small))


def make_settings(
    train: TableTrainConfig | LayoutTrainConfig,
    manifest: GraphManifest,
    expected: float,
    num_blocks: int,
    *,
    beyond_memory: bool = False,
) -> Settings:
    """Cut a training into chunks of `expected` pairs and pools of chunks."""
    strategy: Any = train.strategy
    samples = train.samples or usual_samples(manifest)
    total = max(1, math.ceil(samples / expected))
    pools = _POOLS_BEYOND_MEMORY if beyond_memory else _POOLS
    pool = strategy.pool or min(max(samples / pools, _LEAST_PAIRS), _MOST_PAIRS)
    return Settings(num_blocks, total, min(total, max(1, round(pool / expected))))


def table_memory(train: BlockTrainConfig, free_bytes: int) -> int:
    """Return the bytes that the tables may take on a rank, of what its machine has free."""
    strategy: Any = train.strategy
    return max(1, int(strategy.memory or _TABLES_SHARE * free_bytes / train.num_ranks))


def choose_blocks(
    strategy: BlockGrid,
    sizes: TableSizes,
    memory: int,
    threads: int,
    *,
    shared: bool,
    device_memory: int | None = None,
) -> int:
    """Return how many blocks each table has; `shared`: see `BlockGrid`.

    Tables may take `memory` bytes on a rank, and `device_memory` on its device (None: it trains on its CPU); a rank
    trains as many pairs of blocks side by side as it has `threads`.
    """
    if strategy.config.blocks is not None:
        return strategy.config.blocks
    world = strategy.ranks.world_size
    fits = sizes.all_tables <= memory * world
    if fits and world == 1 and (device_memory is None or sizes.all_tables <= device_memory):
        return 1
    # With several ranks, or with files, each thread of each rank has a pair of blocks.
    least = [strategy.least_blocks(shared=shared, threads=threads)]
    if not fits:
        least.append(_blocks_of_room(sizes, threads, memory))
    if device_memory is not None:
        least.append(_blocks_of_room(sizes, threads, device_memory))
    # Threads do with fewer, and so with less, where blocks would have too few rows; memory cannot: see `choose_room`.
    return max(min(max(least), sizes.most_blocks), strategy.least_blocks(shared=shared) if world > 1 else 1)


def _blocks_of_room(sizes: TableSizes, pairs: int, memory: int) -> int:
    """Return into how many blocks tables are cut so that those of some pairs, side by side, have room in memory."""
    return math.ceil(pairs * sizes.keys * sizes.largest / memory)


def choose_room(num_blocks: int, sizes: TableSizes, memory: int, threads: int, world: int) -> int | None:
    """Return how many blocks of tables lie in a rank's memory at a time; None: all that it has.

    Raises RecipeError: not even what its threads train at once has room.
    """
    if sizes.all_tables <= memory * world:
        return None
    enough = in_words(min(threads * sizes.keys * sizes.largest / sizes.most_blocks, sizes.all_tables / world))
    way_out = f"raise train.strategy.memory to {enough} or more, or lower train.threads"
    return _room(num_blocks, sizes, memory, threads, in_words(memory), way_out)


def choose_device_room(num_blocks: int, sizes: TableSizes, memory: int) -> int:
    """Return how many blocks of tables lie on a rank's device at a time.

    Raises RecipeError: not even what a pair of blocks meets in has room.
    """
    if sizes.all_tables <= memory:
        return num_blocks * sizes.keys
    return _room(num_blocks, sizes, memory, 1, f"{in_words(memory)} of the GPU's memory", "set train.device=cpu")


def _room(num_blocks: int, sizes: TableSizes, memory: int, pairs: int, where: str, way_out: str) -> int:
    """Return how many blocks have room in memory, where some pairs of blocks are trained side by side."""
    least, room = pairs * sizes.keys, memory * num_blocks // sizes.largest
    if room >= least:
        return room
    enough_blocks = _blocks_of_room(sizes, pairs, memory)
    more = f"give {enough_blocks} blocks or more, or none, or " if enough_blocks <= sizes.most_blocks else ""
    raise RecipeError(
        f"train.strategy.blocks={num_blocks} makes blocks of {in_words(sizes.largest / num_blocks)}, and the {least} "
        f"that are trained at once have no room in {where}; {more}{way_out}"
    )
