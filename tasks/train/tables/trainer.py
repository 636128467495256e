"""The training of tables by samples: pools of pairs, drawn and trained, between checkpoints.

Everything random comes from counters (seed, pool, chunk). With one thread, or with several blocks, a run that was
killed and goes on from its last checkpoint takes the same steps as one that was left alone.

Each rank trains the pairs of blocks that the strategy gives it, round by round; before a round blocks move to the ranks
that train them. Where memory is too small, only the blocks that are trained lie there.
"""

from __future__ import annotations

import itertools
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np

from configs.errors import RecipeError
from configs.registry import LOADERS, MODELS, SCHEDULES, STRATEGIES
from configs.training import TableTrainConfig
from models.kernels.row_layout import Rule
from models.kernels.threads import num_threads, run_each
from models.vectors import SampledModel, Samples
from tasks.arrays import Array
from tasks.processes.device import use_threads
from tasks.processes.memory import available_bytes
from tasks.sampling.alias import draw_many
from tasks.sampling.degrees import degrees, warn_of_isolated
from tasks.sampling.neighbors import derive_key
from tasks.storage.file_names import file_name
from tasks.storage.graph_store import GraphStore
from tasks.train import checkpoint
from tasks.train.job import LAST, Job
from tasks.train.journal import Journal, Progress
from tasks.train.loaders.pairs import PairData, PairLoader
from tasks.train.ranks.collectives import from_main, sum_over_ranks, wait_for_all
from tasks.train.schedules.base import Schedule
from tasks.train.strategies.base import Ranks
from tasks.train.strategies.block_grid import BlockGrid, Round
from tasks.train.tables.block_files import BlockFiles
from tasks.train.tables.grid import Grid, Tables
from tasks.train.tables.negatives import Negatives
from tasks.train.tables.pools import Pool, PoolDraws
from tasks.train.tables.settings import Settings, TableSizes, choose_blocks, choose_room, make_settings, table_memory
from tasks.train.vectors import finish_vectors

TableJob = Job[TableTrainConfig]
_PAIRS, _NEGATIVES, _ROUNDING = 1, 2, 3  # purposes that keys are drawn for
_CHUNK_PAIRS = 1 << 14
_LOSS_PAIRS = 1 << 12
"""Of a pool, whose loss is measured before they are trained."""
_BLOCKS, _SCRATCH = "blocks", "scratch"


class Trainer:
    """Trains the blocks of one rank."""

    def __init__(self, job: TableJob, ranks: Ranks) -> None:
        """Open the graph, make the tables, and restore the last checkpoint."""
        self.job, self.config, self.ranks = job, job.train, ranks
        use_threads(self.config.threads)
        self.store = GraphStore.open(job.graph)
        self.id_type = self.store["csr_indices"].dtype
        data = PairData(self.store, derive_key(job.seed, _PAIRS))
        self.loader: PairLoader = LOADERS.create(self.config.loader, data)
        self.strategy: BlockGrid = STRATEGIES.create(self.config.strategy, ranks)
        self.model: type[SampledModel] = MODELS.get(job.model.name)
        self.options = cast(Any, job.model)
        self.shared = any(pairing.shared for pairing in self.options.pairings())
        self.schedule: Schedule = SCHEDULES.create(self.config.schedule)
        self.progress = Progress()
        self._checkpoint_at = time.monotonic()
        state = self._last_state()
        self._make_tables(state)
        if state:
            self.grid.restore(state["blocks"])
            self.progress = Progress(**state["progress"])
        self.journal = Journal(
            job.work,
            self.progress,
            self.settings.num_pools,
            1,
            ranks.world_size,
            writes=ranks.is_main,
            unit="samples",
        )

    def _make_tables(self, state: dict[str, Any]) -> None:
        """Cut the tables into blocks, as they were cut in the training that goes on, and say where they lie."""
        manifest, threads, world = self.store.manifest, num_threads(), self.ranks.world_size
        pairings, rule = self.options.pairings(), Rule(self.config.optimizer)
        sizes = TableSizes.of(pairings, manifest.num_nodes, self.config.precision, rule)
        memory = from_main(table_memory(self.config, available_bytes()))
        chosen = choose_blocks(self.strategy, sizes, memory, threads, shared=self.shared)
        made = state.get("settings", {})
        blocks = made.get("num_blocks", min(chosen, manifest.num_nodes))
        room = choose_room(blocks, sizes, memory, threads, world)
        expected, beyond_memory = self.loader.expected, room is not None
        usual = make_settings(self.config, manifest, expected, blocks, beyond_memory=beyond_memory)
        self.settings = Settings(**made) if made else usual
        tables = Tables(pairings, manifest.num_nodes, blocks, self.config.precision, rule, self.job.seed)
        self.grid = Grid(tables, self.ranks, BlockFiles(self.job.work / _BLOCKS), room)
        self.negatives = Negatives(degrees(self.store), blocks, self.options.negative_power)
        self.rounds = self.strategy.rounds(blocks, threads * world, shared=self.shared)
        owners = np.empty((blocks, blocks), np.int64)
        for met in self.rounds:
            for place, pair in enumerate(met):
                owners[pair] = self.strategy.rank_of(place)
        self.draws = PoolDraws(self.loader, owners, self.ranks, self.id_type, self._allocate)
        if self.ranks.is_main:
            where = f"{room} of them in memory at a time" if room else "in memory"
            print(f"tables: {sizes.all_tables / 1e6:,.1f} MB in {blocks} x {blocks} blocks, {where}")
            samples = self.settings.total_chunks * self.loader.expected
            print(f"samples: {samples:,.0f} in {self.settings.num_pools} pools")
            warn_of_isolated(self.store, "stay as they are drawn at first")

    def _allocate(self, name: str, count: int, dtype: Any) -> Array:
        """Return room for a pool: in a file where the tables have no room in memory."""
        if self.grid.room is None or not count:
            return np.empty(count, dtype)
        folder = self.job.work / _SCRATCH
        folder.mkdir(exist_ok=True)
        return np.memmap(folder / file_name(f"{name}.{self.ranks.rank}"), dtype, "w+", shape=(count,))

    def run(self) -> None:
        """Train pool by pool, to the last checkpoint."""
        settings, progress = self.settings, self.progress
        while progress.step < settings.num_pools:
            began = time.perf_counter()
            first = progress.step * settings.chunks_a_pool
            chunks = range(first, min(first + settings.chunks_a_pool, settings.total_chunks))
            self.grid.version = progress.step + 1
            whole = settings.num_blocks == 1 and self.grid.room is None
            loss, pairs = self._train_chunks(chunks) if whole else self._train_pool(chunks)
            progress.step += 1
            for totals in (progress.epoch_totals, progress.run_totals):
                totals[-3] += pairs
                totals[-1] += time.perf_counter() - began
            progress.epoch_totals[0] += loss * pairs
            self.journal.record({"train/loss": loss, "learning_rate": self._rate(chunks.start)})
            self.journal.write_progress()
            if from_main(time.monotonic() - self._checkpoint_at > 60 * self.config.checkpoint_minutes):
                self._save_last()
        self._save_last()

    def vectors(self) -> Array:
        """Return the vectors at the end, float32 (N, dim); in a file where the tables have no room in memory."""
        self.journal.write_progress("making vectors of the rows", force=True)
        num_nodes, dim = self.store.manifest.num_nodes, self.options.dim
        vectors = self._allocate("vectors", num_nodes * dim, np.float32).reshape(num_nodes, dim)
        self.grid.vectors(self.model, self.options, vectors)
        return vectors

    def finish(self) -> None:
        """Make the vectors, fit a head and write the outcome; rank 0 does so when the others have left."""
        numbers = self.grid.tables.numbers
        finish_vectors(self.job, Ranks(), self.store, self.vectors(), self.journal, numbers)

    # ---- steps

    def _rate(self, chunk: int) -> float:
        """Return the learning rate of a chunk."""
        warmup = self.schedule.config.warmup_steps * self.settings.chunks_a_pool
        if chunk < warmup:
            return self.config.learning_rate * (chunk + 1) / warmup
        left = max(1, self.settings.total_chunks - warmup)
        return self.config.learning_rate * self.schedule.factor((chunk - warmup) / left)

    def _train_chunks(self, chunks: range) -> tuple[float, int]:
        """Train one block: threads draw chunks and train them at once, without locks; return the loss and the pairs."""
        counts = np.zeros(len(chunks), np.int64)
        self.grid.load(self.grid.keys(0, 0), to_change=True)
        tables = self.grid.meeting(0, 0)
        centres, contexts = (np.empty(self.loader.room, self.id_type) for _ in range(2))
        count = min(self.loader.fill(chunks.start, centres, contexts), _LOSS_PAIRS)
        loss = self._loss(tables, centres[:count], contexts[:count], (chunks.start, -1, 0), 0)
        self._check_loss(loss)

        def work(number: int) -> None:
            centres, contexts = (np.empty(self.loader.room, self.id_type) for _ in range(2))
            chunk = chunks[number]
            count = counts[number] = self.loader.fill(chunk, centres, contexts)
            self._learn(tables, centres[:count], contexts[:count], (chunk, 0, 0), 0, self._rate(chunk))

        run_each(work, len(chunks))
        return loss, int(counts.sum())

    def _train_pool(self, chunks: range) -> tuple[float, int]:
        """Draw a pool, train it round by round; return all ranks' loss and pairs."""
        pool = self.draws.draw(chunks)
        losses = np.zeros((self.settings.num_blocks, self.settings.num_blocks))
        for met in self.rounds:
            self.grid.bring_round(met, self.strategy.rank_of)
            own = [pair for place, pair in enumerate(met) if self.strategy.rank_of(place) == self.ranks.rank]
            for low in range(0, len(own), num_threads()):
                self._train_pairs(pool, own[low : low + num_threads()], chunks.start, losses)
        total, pairs = sum_over_ranks([float((losses * pool.sizes).sum()), len(pool)])
        loss = total / max(1, pairs)
        self._check_loss(loss)
        return loss, int(pairs)

    def _train_pairs(self, pool: Pool, met: Round, chunk: int, losses: Array) -> None:
        """Train some pairs of blocks, each on a thread; set the mean loss of each one's first: float64 (n, n)."""
        self.grid.load(itertools.chain.from_iterable(self.grid.keys(*pair) for pair in met), to_change=True)
        rate, n = self._rate(chunk), self.settings.num_blocks

        def train(number: int) -> None:
            row, column = met[number]
            tables, bucket = self.grid.meeting(row, column), row * n + column
            for place, part in enumerate(pool.parts(row, column, _CHUNK_PAIRS)):
                rows, columns = pool.rows[part], pool.columns[part]
                if not place:
                    some, draws = max(1, _LOSS_PAIRS // n**2), (chunk, -1, bucket)
                    losses[row, column] = self._loss(tables, rows[:some], columns[:some], draws, column)
                self._learn(tables, rows, columns, (chunk, 1 + bucket, part.start), column, rate)

        run_each(train, len(met))

    def _learn(
        self, tables: Any, centres: Array, contexts: Array, number: tuple[int, int, int], block: int, rate: float
    ) -> None:
        """Draw the negatives of some pairs, in a block of contexts, and take the steps."""
        drawn = self._draw_negatives(len(centres), number, block)
        noise = derive_key(self.job.seed, _ROUNDING, *number) | 1
        self.model.learn(self.options, tables, Samples(centres, contexts, drawn), rate, noise)

    def _draw_negatives(self, count: int, number: tuple[int, int, int], block: int) -> Array:
        groups = -(-count // self.options.shared_negatives)
        drawn = np.empty((groups, self.options.negatives), self.id_type)
        key = derive_key(self.job.seed, _NEGATIVES, *number)
        draw_many(self.negatives.tables[block], np.uint64(key), drawn.reshape(-1))
        return drawn

    def _loss(self, tables: Any, centres: Array, contexts: Array, number: tuple[int, int, int], block: int) -> float:
        """Return the mean loss of some pairs that are about to be trained."""
        drawn = self._draw_negatives(len(centres), number, block)
        return self.model.loss(self.options, tables, Samples(centres, contexts, drawn))

    def _check_loss(self, loss: float) -> None:
        if not np.isfinite(loss):
            raise RecipeError(
                f"the training diverged: the loss is {loss} after {self.progress.step} of {self.settings.num_pools} "
                f"pools; lower train.learning_rate (now {self.config.learning_rate:g})"
            )

    # ---- checkpoints

    def _save_last(self) -> None:
        """Write what differs from the last checkpoint, then say that the training goes on from there."""
        self._checkpoint_at = time.monotonic()
        self.journal.note_checkpoint()
        self.grid.version = self.progress.step
        versions = self.grid.save()
        if self.ranks.is_main:
            state = {
                "config_digest": self.job.digest,
                "progress": asdict(self.progress),
                "settings": asdict(self.settings),
                "blocks": versions,
            }
            checkpoint.save_atomic(state, self.job.work / LAST)
        self.grid.saved(versions)
        wait_for_all()  # rank 0 has removed older files before another writes new ones

    def _last_state(self) -> dict[str, Any]:
        """Return the last checkpoint, the same on all ranks; empty: there is none."""
        path: Path = self.job.work / LAST
        return from_main(checkpoint.load(path, self.job.digest) if self.ranks.is_main and path.exists() else {})
