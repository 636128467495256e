"""The training of tables by samples, whatever these are: pools, drawn and trained. A pool is a step, and a round.

Everything random comes from counters (seed, pool, chunk). With one thread, or with several blocks, a run that was
killed and goes on from its last checkpoint takes the same steps as one that was left alone.

Each rank trains the pairs of blocks that the strategy gives it, round by round of the grid; before these blocks move to
the ranks that train them. Where memory is too small, only the blocks that are trained lie there. A stepper takes the
steps, on the CPU's threads or on a device; one on a device keeps rows there until the grid asks for them
(`Grid.take_back`), and its steps are not the same from run to run.
"""

from __future__ import annotations

import itertools
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch

from configs.errors import RecipeError
from configs.registry import LOADERS, MODELS, SCHEDULES, STRATEGIES
from configs.values.sizes import in_words
from models.kernels.tables.row_layout import UpdateRule
from models.kernels.tables.row_tables import RowTable
from tasks.arrays import Array
from tasks.processes.device import use_threads
from tasks.processes.memory import available_bytes
from tasks.sampling.degrees import degrees, warn_of_isolated
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.storage.file_names import file_name
from tasks.storage.graph_store import GraphStore
from tasks.train.job import Job
from tasks.train.loaders.base import SampleData
from tasks.train.loaders.pairs import PairLoader
from tasks.train.node_vectors.heads import finish_vectors
from tasks.train.ranks.collectives import from_all, from_main, wait_for_all
from tasks.train.run import Engine, RoundTotals
from tasks.train.schedules.base import Schedule
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tasks.train.strategies.block_grid import BlockGrid
from tasks.train.strategies.configs import LEAST_ROWS
from tasks.train.tables.device import DeviceStepper, RankDevice, ResidentBlocks
from tasks.train.tables.grid import BlockFiles, Grid, Key, Saved, TableSpec, first_rows
from tasks.train.tables.objective import PAIRS, Negatives, PairLearning, SampleStepper, Stepper
from tasks.train.tables.pools import PoolDraws
from tasks.train.tables.settings import Settings, TableSizes, choose_blocks, choose_room, make_settings, table_memory

_BLOCKS, _SCRATCH = "blocks", "scratch"


class BlockEngine(Engine):
    """The blocks of one rank. What the samples are, families say in the methods that are abstract here."""

    unit = "samples"
    deals = False
    """Whether samples with both ends in one block are trained where it meets another one: see `PoolDraws`."""

    def __init__(self, job: Job[Any], ranks: Ranks, place: RankDevice | None = None) -> None:
        """Open the graph, make the tables, and restore the last checkpoint; `place` None: train on the CPU."""
        super().__init__(job, ranks)
        self.config, self.place = job.train, place or RankDevice(torch.device("cpu"))
        self.device = self.place.device
        use_threads(self.config.threads)
        self.store = GraphStore.open(job.graph)
        self.id_type = self.store["csc_indices"].dtype
        self.strategy: BlockGrid = STRATEGIES.create(self.config.strategy, ranks)
        self.model: type[Any] = MODELS.get(job.model.name)
        self.options = cast(Any, job.model)
        self.loader = self.make_loader()
        self.shared = any(pairing.shared for pairing in self.options.pairings())
        self.schedule: Schedule = SCHEDULES.create(self.config.schedule)
        with checkpoint.going_on_from(self.last_path):
            made = Settings(**self.last["settings"]) if self.last else None
        self._make_tables(made)
        if self.last:
            with checkpoint.going_on_from(self.last_path):
                self.grid.restore(self.last["blocks"], self.kept_files(self.last))
                self.restore(self.last)
            self.last = None
        self.begin(self.settings.num_pools, getattr(self.config, "epochs", 1))

    # ---- what a family says

    def make_loader(self) -> Any:
        """Return what makes samples: see `PoolDraws`. Raises DataError."""
        raise AssertionError(f"{type(self).__name__} defines no make_loader")

    def usual_settings(self, num_blocks: int, *, beyond_memory: bool) -> Settings:
        """Return the numbers of a training that begins."""
        raise AssertionError(f"{type(self).__name__} defines no usual_settings")

    def make_stepper(self) -> Stepper:
        """Return what takes the steps, on `step_device` (None: on the CPU's threads)."""
        raise AssertionError(f"{type(self).__name__} defines no make_stepper")

    def start(self, key: Key, table: RowTable) -> None:
        """Fill a block as it begins. Here: rows of centres are drawn as word2vec's, rows of contexts are 0."""
        first_rows(self.grid.tables, key, table)

    def taking_steps(self) -> AbstractContextManager[object]:
        """Return what holds while steps are taken. Here: nothing."""
        return nullcontext()

    def after_grid_round(self) -> None:
        """Share what ranks have beside the blocks."""

    def own_state(self) -> dict[str, Any]:
        """Return what a checkpoint has to hold beside the blocks."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `own_state` returned."""

    def kept_files(self, state: dict[str, Any]) -> Saved:
        """Return the files, beside those of the blocks as they are, that a checkpoint has to keep."""
        return {}

    # ---- tables

    def _make_tables(self, made: Settings | None) -> None:
        """Cut the tables into blocks, as they were cut in the training that goes on, and say where they lie."""
        manifest, workers, world = self.store.manifest, self.place.workers, self.ranks.world_size
        pairings, rule = self.options.pairings(), UpdateRule(self.config.optimizer)
        sizes = TableSizes.of(pairings, manifest.num_nodes, self.config.precision, rule)
        memory = from_main(table_memory(self.config, available_bytes()))
        device_memory = self._device_memory()
        if device_memory is not None and sizes.all_tables > device_memory:
            raise RecipeError(
                f"train.device=cuda: tables of {in_words(sizes.all_tables)} have no room in the "
                f"{in_words(device_memory)} of the GPU's memory that they may take; set train.device=cpu"
            )
        self.step_device = None if device_memory is None else self.device
        blocks = made.num_blocks if made else choose_blocks(self.strategy, sizes, memory, workers, shared=self.shared)
        room = choose_room(blocks, sizes, memory, workers, world)
        self.settings = made or self.usual_settings(blocks, beyond_memory=room is not None)
        tables = TableSpec(pairings, manifest.num_nodes, blocks, self.config.precision, rule, self.job.seed)
        self.grid = Grid(tables, self.ranks, BlockFiles(self.job.work / _BLOCKS), room, self.start)
        self.stepper = self.make_stepper()
        rounds = self.strategy.rounds(blocks, workers * world, shared=self.shared)
        if self.deals and blocks > 1:
            rounds = [[(row, column) for row, column in met if row != column] for met in rounds]
        self.rounds = [met for met in rounds if met]
        if self.ranks.is_main:
            self._announce(sizes, room, "" if self.step_device is None else f", trained on {self.step_device}")

    def _announce(self, sizes: TableSizes, room: int | None, place: str) -> None:
        """Say into what tables are cut, and what keeps threads waiting."""
        blocks, threads = self.settings.num_blocks, self.place.workers
        where = f"{room} of them in memory at a time" if room else "in memory"
        print(f"tables: {in_words(sizes.all_tables)} in {blocks} x {blocks} blocks, {where}{place}")
        busy = self.strategy.least_blocks(shared=self.shared, threads=threads)
        if self.strategy.config.blocks is None and 1 < blocks < busy:
            print(f"not all threads have a block at a time: {busy} blocks would have fewer than {LEAST_ROWS} rows each")

    @cached_property
    def draws(self) -> PoolDraws:
        """What draws pools."""
        owners = np.zeros((self.settings.num_blocks, self.settings.num_blocks), np.int64)
        for met in self.rounds:
            for place, pair in enumerate(met):
                owners[pair] = self.strategy.rank_of(place)
        return PoolDraws(self.loader, owners, self.ranks, self.id_type, self.allocate, deals=self.deals)

    def _device_memory(self) -> int | None:
        """Return the bytes that tables may take on the device of any rank; None: ranks train on their CPUs.

        Raises RecipeError: some have a device and some have none.
        """
        of_ranks = from_all(self.place.memory)
        of_devices = [memory for memory in of_ranks if memory is not None]
        if of_devices and len(of_devices) < len(of_ranks):
            raise RecipeError("some ranks have a GPU to train on and others have none; set train.device=cpu")
        return min(of_devices, default=None)

    def allocate(self, name: str, count: int, dtype: Any) -> Array:
        """Return room for a pool: in a file where the tables have no room in memory."""
        if self.grid.room is None or not count:
            return np.empty(count, dtype)
        folder = self.job.work / _SCRATCH
        folder.mkdir(exist_ok=True)
        return np.memmap(folder / file_name(f"{name}.{self.ranks.rank}"), dtype, "w+", shape=(count,))

    # ---- steps

    def step(self) -> None:
        """Train a pool."""
        settings, first = self.settings, self.progress.step * self.settings.chunks_a_pool
        chunks = range(first, min(first + settings.chunks_a_pool, settings.total_chunks))
        self.grid.version = self.progress.step + 1
        self._loss: float | None = None
        with self.taking_steps():
            if settings.num_blocks == 1 and self.grid.room is None:
                self._loss, pairs = self.train_chunks(chunks)
                self.progress.count_step(self._loss * pairs, pairs)
            else:
                self.progress.count_step(*self.train_pool(chunks))

    def end_round(self, totals: RoundTotals) -> dict[str, float]:
        """Record a pool's loss in a line of its own. Raises RecipeError: it is no number."""
        loss = totals.loss / max(1, totals.samples) if self._loss is None else self._loss
        pool = self.progress.step - 1
        if not np.isfinite(loss):
            raise RecipeError(
                f"the training diverged: the loss is {loss} after {pool} of {self.total_steps} pools; lower "
                f"train.learning_rate (now {self.config.learning_rate:g})"
            )
        self.journal.record({"train/loss": loss, "learning_rate": self.rate(pool * self.settings.chunks_a_pool)})
        return {}

    def rate(self, chunk: int) -> float:
        """Return the learning rate of a chunk."""
        warmup = self.schedule.config.warmup_steps * self.settings.chunks_a_pool
        return self.config.learning_rate * self.schedule.share(chunk, self.settings.total_chunks, warmup)

    def train_chunks(self, chunks: range) -> tuple[float, int]:
        """Draw and train chunks at once, in a grid of one block; return their mean loss and the number of pairs."""
        self.grid.load(self.grid.keys(0, 0), to_change=True)
        return self.stepper.train_chunks(chunks, np.array([self.rate(chunk) for chunk in chunks]))

    def train_pool(self, chunks: range) -> tuple[float, int]:
        """Draw a pool, and train it round by round of the grid; return this rank's sum of losses and pairs."""
        pool, rate = self.draws.draw(chunks), self.rate(chunks.start)
        losses = np.zeros((self.settings.num_blocks, self.settings.num_blocks))
        for met in self.rounds:
            of_round = {
                key: self.strategy.rank_of(place) for place, pair in enumerate(met) for key in self.grid.keys(*pair)
            }
            self.grid.bring(of_round)
            own = [pair for place, pair in enumerate(met) if self.strategy.rank_of(place) == self.ranks.rank]
            for low in range(0, len(own), self.place.workers):
                some = own[low : low + self.place.workers]
                self.grid.load(itertools.chain.from_iterable(self.grid.keys(*pair) for pair in some), to_change=True)
                of_buckets = self.stepper.train_buckets(pool, some, chunks.start, rate)
                for pair, loss in zip(some, of_buckets, strict=True):
                    losses[pair] = loss
            self.after_grid_round()
        return float((losses * pool.sizes).sum()), len(pool)

    # ---- checkpoints

    def state(self) -> dict[str, Any]:
        """Write the blocks that differ from the last checkpoint; return which files they are, and all else."""
        self.grid.version = self.progress.step
        return {"settings": asdict(self.settings), "blocks": self.grid.save(), **self.own_state()}

    def saved(self, state: dict[str, Any]) -> None:
        """Remove older files."""
        self.grid.saved(state["blocks"], self.kept_files(state))
        wait_for_all()  # rank 0 has removed them before another writes new ones

    @property
    def num_parameters(self) -> int:
        """Those of the tables."""
        return self.grid.tables.numbers


class PairEngine(BlockEngine):
    """Learns from pairs; at the end every node has a vector."""

    loader: PairLoader
    fate_of_isolated = "their vectors stay as they are drawn at first"

    def make_loader(self) -> PairLoader:
        """Return what makes pairs. Raises DataError: the graph has nothing to draw."""
        data = SampleData(self.store, derive_key(self.job.seed, PAIRS))
        loader: PairLoader = LOADERS.create(self.config.loader, data)
        return loader

    def usual_settings(self, num_blocks: int, *, beyond_memory: bool) -> Settings:
        """Return as many samples as the recipe says, or the graph's size."""
        return make_settings(
            self.config, self.store.manifest, self.loader.expected, num_blocks, beyond_memory=beyond_memory
        )

    def make_stepper(self) -> Stepper:
        """Return what takes the steps: the CPU's threads, or a device."""
        negatives = Negatives(degrees(self.store), self.settings.num_blocks, self.options.negative_power)
        objective = PairLearning(self.model, self.options, self.loader, negatives, self.job.seed)
        if self.ranks.is_main:
            samples = self.settings.total_chunks * self.loader.expected
            print(f"samples: {samples:,.0f} in {self.settings.num_pools} pools")
            warn_of_isolated(self.store, self.fate_of_isolated)
        if self.step_device is None:
            return SampleStepper(objective, self.grid)
        return DeviceStepper(objective, ResidentBlocks(self.grid, self.step_device))

    def vectors(self) -> Array:
        """Return the vectors at the end, float32 (N, dim); in a file where the tables have no room in memory."""
        self.journal.write_progress("making vectors of the rows", force=True)
        num_nodes, dim = self.store.manifest.num_nodes, self.options.dim
        vectors = self.allocate("vectors", num_nodes * dim, np.float32).reshape(num_nodes, dim)
        self.grid.vectors(self.model, self.options, vectors)
        return vectors

    def finish(self) -> None:
        """Make the vectors, fit a head and write both."""
        finish_vectors(self.job, self.store, self.vectors(), self.journal)
