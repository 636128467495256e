"""The training of tables by samples, whatever these are: pools, drawn and trained, between checkpoints.

Everything random comes from counters (seed, pool, chunk). With one thread, or with several blocks, a run that was
killed and goes on from its last checkpoint takes the same steps as one that was left alone.

Each rank trains the pairs of blocks that the strategy gives it, round by round; before a round blocks move to the ranks
that train them. Where memory is too small, only the blocks that are trained lie there. An engine takes the steps, on
the CPU's threads or on a device; one on a device keeps rows there until the grid asks for them (`Grid.take_back`), and
its steps are not the same from run to run.
"""

from __future__ import annotations

import itertools
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from configs.errors import RecipeError
from configs.registry import MODELS, SCHEDULES, STRATEGIES
from configs.values.sizes import in_words
from models.kernels.tables.row_layout import UpdateRule
from models.kernels.tables.row_tables import RowTable
from tasks.arrays import Array
from tasks.processes.device import use_threads
from tasks.processes.memory import available_bytes
from tasks.storage.file_names import file_name
from tasks.storage.graph_store import GraphStore
from tasks.train.job import LAST, Job
from tasks.train.ranks.collectives import from_all, from_main, sum_over_ranks, wait_for_all
from tasks.train.schedules.base import Schedule
from tasks.train.state import checkpoint
from tasks.train.state.journal import Journal, Progress
from tasks.train.strategies.base import Ranks
from tasks.train.strategies.block_grid import BlockGrid
from tasks.train.strategies.configs import LEAST_ROWS
from tasks.train.tables.block_files import BlockFiles, Key
from tasks.train.tables.grid import Grid, Saved, Tables, first_rows
from tasks.train.tables.objective import Engine
from tasks.train.tables.place import Place
from tasks.train.tables.pools import PoolDraws
from tasks.train.tables.settings import (
    Settings,
    TableSizes,
    choose_blocks,
    choose_room,
    table_memory,
)

_BLOCKS, _SCRATCH = "blocks", "scratch"


class BlockTrainer:
    """Trains the blocks of one rank. What the samples are, families say in the methods that raise here."""

    unit = "samples"
    """What is counted."""
    deals = False
    """Whether samples with both ends in one block are trained where it meets another one: see `PoolDraws`."""

    def __init__(self, job: Job[Any], ranks: Ranks, place: Place | None = None) -> None:
        """Open the graph, make the tables, and restore the last checkpoint; `place` None: train on the CPU."""
        self.job, self.config, self.ranks = job, job.train, ranks
        self.place = place or Place(torch.device("cpu"))
        use_threads(self.config.threads)
        self.store = GraphStore.open(job.graph)
        self.id_type = self.store["csc_indices"].dtype
        self.strategy: BlockGrid = STRATEGIES.create(self.config.strategy, ranks)
        self.model: type[Any] = MODELS.get(job.model.name)
        self.options = cast(Any, job.model)
        self.loader = self.make_loader()
        self.shared = any(pairing.shared for pairing in self.options.pairings())
        self.schedule: Schedule = SCHEDULES.create(self.config.schedule)
        self._checkpoint_at = time.monotonic()
        state = self._last_state()
        with checkpoint.going_on_from(job.work / LAST):
            made = Settings(**state["settings"]) if state else None
            self.progress = Progress(**state["progress"]) if state else Progress()
        self._make_tables(made)
        if state:
            with checkpoint.going_on_from(job.work / LAST):
                self.grid.restore(state["blocks"], self.kept_files(state))
                self.restore(state)
        steps = self.settings.num_pools, self.num_epochs
        self.journal = Journal(job.work, self.progress, *steps, ranks.world_size, writes=ranks.is_main, unit=self.unit)

    # ---- what a family says

    def make_loader(self) -> Any:
        """Return what makes samples: see `PoolDraws`. Raises DataError."""
        raise AssertionError(f"{type(self).__name__} defines no make_loader")

    def usual_settings(self, num_blocks: int, *, beyond_memory: bool) -> Settings:
        """Return the numbers of a training that begins."""
        raise AssertionError(f"{type(self).__name__} defines no usual_settings")

    def make_engine(self, sizes: TableSizes, device_memory: int | None) -> Engine:
        """Return what takes the steps; `device_memory`: bytes that tables and graph may take on the device."""
        raise AssertionError(f"{type(self).__name__} defines no make_engine")

    def start(self, key: Key, table: RowTable) -> None:
        """Fill a block as it begins. Here: rows of centres are drawn as word2vec's, rows of contexts are 0."""
        first_rows(self.grid.tables, key, table)

    @property
    def num_epochs(self) -> int:
        """Epochs of the training, for people."""
        return 1

    def taking_steps(self) -> AbstractContextManager[object]:
        """Return what holds while steps are taken. Here: nothing."""
        return nullcontext()

    def after_round(self) -> None:
        """Share what ranks have beside the blocks."""

    def after_pool(self) -> None:
        """Look at what was learnt. Here: nothing."""

    @property
    def is_over(self) -> bool:
        """Whether the training ends before its last pool."""
        return False

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint has to hold beside the blocks."""
        return {}

    def count_epochs(self) -> None:
        """Set `progress.epoch` after a pool, where epochs mean something."""

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned."""

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
        chosen = choose_blocks(self.strategy, sizes, memory, workers, shared=self.shared, device_memory=device_memory)
        blocks = made.num_blocks if made else chosen
        room = choose_room(blocks, sizes, memory, workers, world)
        self.settings = made or self.usual_settings(blocks, beyond_memory=room is not None)
        tables = Tables(pairings, manifest.num_nodes, blocks, self.config.precision, rule, self.job.seed)
        self.grid = Grid(tables, self.ranks, BlockFiles(self.job.work / _BLOCKS), room, self.start)
        self.engine = self.make_engine(sizes, device_memory)
        rounds = self.strategy.rounds(blocks, workers * world, shared=self.shared)
        if self.deals and blocks > 1:
            rounds = [[(row, column) for row, column in met if row != column] for met in rounds]
        self.rounds = [met for met in rounds if met]
        if self.ranks.is_main:
            self._announce(sizes, room, "" if device_memory is None else f", trained on {self.place.device}")

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
        """Return the bytes that tables and graph may take on the device of any rank; None: ranks train on their CPUs.

        Raises RecipeError: some have a device and some have none.
        """
        found = from_all(self.place.memory_beside_draws(self.store.manifest.num_nodes))
        known = [memory for memory in found if memory is not None]
        if known and len(known) < len(found):
            raise RecipeError("some ranks have a GPU to train on and others have none; set train.device=cpu")
        return min(known, default=None)

    def allocate(self, name: str, count: int, dtype: Any) -> Array:
        """Return room for a pool: in a file where the tables have no room in memory."""
        if self.grid.room is None or not count:
            return np.empty(count, dtype)
        folder = self.job.work / _SCRATCH
        folder.mkdir(exist_ok=True)
        return np.memmap(folder / file_name(f"{name}.{self.ranks.rank}"), dtype, "w+", shape=(count,))

    def run(self) -> None:
        """Train pool by pool, to the last checkpoint."""
        settings, progress = self.settings, self.progress
        while progress.step < settings.num_pools and not self.is_over:
            began = time.perf_counter()
            first = progress.step * settings.chunks_a_pool
            chunks = range(first, min(first + settings.chunks_a_pool, settings.total_chunks))
            self.grid.version = progress.step + 1
            whole = settings.num_blocks == 1 and self.grid.room is None
            with self.taking_steps():
                loss, pairs = self._train_chunks(chunks) if whole else self._train_pool(chunks)
            self._check_loss(loss)
            progress.step += 1
            self.count_epochs()
            for totals in (progress.epoch_totals, progress.run_totals):
                totals[-3] += pairs
                totals[-1] += time.perf_counter() - began
            progress.epoch_totals[0] += loss * pairs
            self.journal.record({"train/loss": loss, "learning_rate": self.rate(chunks.start)})
            self.journal.write_progress()
            self.after_pool()
            if from_main(time.monotonic() - self._checkpoint_at > 60 * self.config.checkpoint_minutes):
                self.save_last()
        self.save_last()

    # ---- steps

    def rate(self, chunk: int) -> float:
        """Return the learning rate of a chunk."""
        warmup = self.schedule.config.warmup_steps * self.settings.chunks_a_pool
        if chunk < warmup:
            return self.config.learning_rate * (chunk + 1) / warmup
        left = max(1, self.settings.total_chunks - warmup)
        return self.config.learning_rate * self.schedule.factor((chunk - warmup) / left)

    def _train_chunks(self, chunks: range) -> tuple[float, int]:
        """Train a grid of one block on chunks that are drawn as they are trained; return the loss and the pairs."""
        self.grid.load(self.grid.keys(0, 0), to_change=True)
        return self.engine.train_chunks(chunks, np.array([self.rate(chunk) for chunk in chunks]))

    def _train_pool(self, chunks: range) -> tuple[float, int]:
        """Draw a pool, train it round by round; return all ranks' loss and pairs."""
        pool, rate = self.draws.draw(chunks), self.rate(chunks.start)
        losses = np.zeros((self.settings.num_blocks, self.settings.num_blocks))
        for met in self.rounds:
            self.grid.bring_round(met, self.strategy.rank_of)
            own = [pair for place, pair in enumerate(met) if self.strategy.rank_of(place) == self.ranks.rank]
            for low in range(0, len(own), self.place.workers):
                some = own[low : low + self.place.workers]
                self.grid.load(itertools.chain.from_iterable(self.grid.keys(*pair) for pair in some), to_change=True)
                found = self.engine.train_buckets(pool, some, chunks.start, rate)
                for pair, loss in zip(some, found, strict=True):
                    losses[pair] = loss
            self.after_round()
        total, pairs = sum_over_ranks([float((losses * pool.sizes).sum()), len(pool)])
        return total / max(1, pairs), int(pairs)

    def _check_loss(self, loss: float) -> None:
        if not np.isfinite(loss):
            raise RecipeError(
                f"the training diverged: the loss is {loss} after {self.progress.step} of {self.settings.num_pools} "
                f"pools; lower train.learning_rate (now {self.config.learning_rate:g})"
            )

    # ---- checkpoints

    def save_last(self) -> None:
        """Write what differs from the last checkpoint, then say that the training goes on from there."""
        self._checkpoint_at = time.monotonic()
        self.journal.note_checkpoint()
        self.grid.version = self.progress.step
        files, own = self.grid.save(), self.state()
        if self.ranks.is_main:
            state = {
                "config_digest": self.job.digest,
                "progress": asdict(self.progress),
                "settings": asdict(self.settings),
                "blocks": files,
                **own,
            }
            checkpoint.save_atomic(state, self.job.work / LAST)
        self.grid.saved(files, self.kept_files(own))
        wait_for_all()  # rank 0 has removed older files before another writes new ones

    def _last_state(self) -> dict[str, Any]:
        """Return the last checkpoint, the same on all ranks; empty: there is none."""
        path: Path = self.job.work / LAST
        return from_main(checkpoint.load(path, self.job.digest) if self.ranks.is_main and path.exists() else {})
