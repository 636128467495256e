"""The training of tables by samples: pools of pairs, drawn and trained, between checkpoints.

Everything random comes from counters (seed, pool, chunk). With one thread, or with several blocks, a run that was
killed and goes on from its last checkpoint takes the same steps as one that was left alone.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, cast

import numpy as np

from configs.errors import RecipeError
from configs.registry import LOADERS, MODELS, SCHEDULES, STRATEGIES
from configs.training import TableTrainConfig
from models.kernels.row_layout import Rule
from models.kernels.threads import run_each
from models.vectors import SampledModel, Samples
from tasks.arrays import Array
from tasks.processes.device import use_threads
from tasks.sampling.alias import draw_many
from tasks.sampling.neighbors import derive_key
from tasks.storage.graph_store import GraphStore
from tasks.train import checkpoint
from tasks.train.job import LAST, Job
from tasks.train.journal import Journal, Progress
from tasks.train.loaders.pairs import PairData, PairLoader
from tasks.train.schedules.base import Schedule
from tasks.train.strategies.base import Ranks
from tasks.train.strategies.block_grid import BlockGrid
from tasks.train.tables.grid import Grid, Negatives
from tasks.train.tables.pools import draw_pool
from tasks.train.tables.settings import make_settings
from tasks.train.vectors import finish_vectors

TableJob = Job[TableTrainConfig]
_PAIRS, _NEGATIVES, _ROUNDING = 1, 2, 3  # purposes that keys are drawn for
_CHUNK_PAIRS = 1 << 14
_LOSS_PAIRS = 1 << 12


class Trainer:
    """Trains the tables of a model, in one process."""

    def __init__(self, job: TableJob, ranks: Ranks) -> None:
        """Open the graph, make the tables, and restore the last checkpoint."""
        self.job, self.config, self.ranks = job, job.train, ranks
        use_threads(self.config.threads)
        self.store = GraphStore.open(job.graph)
        manifest = self.store.manifest
        self.id_type = self.store["csr_indices"].dtype
        data = PairData(self.store, derive_key(job.seed, _PAIRS))
        self.loader: PairLoader = LOADERS.create(self.config.loader, data)
        self.strategy: BlockGrid = STRATEGIES.create(self.config.strategy, ranks)
        self.settings = make_settings(self.config, manifest, self.loader.expected)
        self.model: type[SampledModel] = MODELS.get(job.model.name)
        self.options = cast(Any, job.model)
        blocks, rule = self.settings.num_blocks, Rule(self.config.optimizer)
        pairings = self.options.pairings()
        self.grid = Grid(pairings, manifest.num_nodes, blocks, self.config.precision, rule, job.seed)
        self.negatives = Negatives(degrees(self.store), blocks, self.options.negative_power)
        self.schedule: Schedule = SCHEDULES.create(self.config.schedule)
        self.progress = Progress()
        self._checkpoint_at = time.monotonic()
        self._restore()
        self.journal = Journal(
            job.work, self.progress, self.settings.num_pools, 1, ranks.world_size, writes=True, unit="samples"
        )

    def run(self) -> None:
        """Train pool by pool."""
        settings, progress = self.settings, self.progress
        while progress.step < settings.num_pools:
            began = time.perf_counter()
            first = progress.step * settings.chunks_a_pool
            chunks = range(first, min(first + settings.chunks_a_pool, settings.total_chunks))
            loss = self._loss(chunks.start)
            pairs = self._train_chunks(chunks) if settings.num_blocks == 1 else self._train_pool(chunks)
            progress.step += 1
            for totals in (progress.epoch_totals, progress.run_totals):
                totals[-3] += pairs
                totals[-1] += time.perf_counter() - began
            progress.epoch_totals[0] += loss * pairs
            self.journal.record({"train/loss": loss, "learning_rate": self._rate(chunks.start)})
            self.journal.write_progress()
            if time.monotonic() - self._checkpoint_at > 60 * self.config.checkpoint_minutes:
                self._save_last()
        self._save_last()
        self.journal.write_progress("making vectors of the rows", force=True)
        vectors = self.grid.vectors(self.model, self.options)
        numbers = sum(table.numbers for table in self.grid.tables().values())
        finish_vectors(self.job, self.ranks, self.store, vectors, self.journal, numbers)

    # ---- steps

    def _rate(self, chunk: int) -> float:
        """Return the learning rate of a chunk."""
        warmup = self.schedule.config.warmup_steps * self.settings.chunks_a_pool
        if chunk < warmup:
            return self.config.learning_rate * (chunk + 1) / warmup
        left = max(1, self.settings.total_chunks - warmup)
        return self.config.learning_rate * self.schedule.factor((chunk - warmup) / left)

    def _train_chunks(self, chunks: range) -> int:
        """Train one block: threads draw chunks and train them at once, without locks; return the pairs."""
        counts = np.zeros(len(chunks), np.int64)
        tables = self.grid.meeting(0, 0)

        def work(number: int) -> None:
            centres, contexts = (np.empty(self.loader.room, self.id_type) for _ in range(2))
            chunk = chunks[number]
            count = counts[number] = self.loader.fill(chunk, centres, contexts)
            self._learn(tables, centres[:count], contexts[:count], (chunk, 0, 0), 0, self._rate(chunk))

        run_each(work, len(chunks))
        return int(counts.sum())

    def _train_pool(self, chunks: range) -> int:
        """Draw a pool sorted by pairs of blocks, train those that share no block side by side; return the pairs."""
        pool = draw_pool(self.loader, chunks, self.grid.num_blocks, self.id_type)
        rate = self._rate(chunks.start)
        for met in self.strategy.rounds(shared=any(pairing.shared for pairing in self.grid.pairings)):

            def train(number: int, met: list[tuple[int, int]] = met) -> None:
                row, column = met[number]
                tables, bucket = self.grid.meeting(row, column), row * self.grid.num_blocks + column
                for low in range(pool.starts[row, column], pool.ends[row, column], _CHUNK_PAIRS):
                    part = slice(low, min(low + _CHUNK_PAIRS, pool.ends[row, column]))
                    draws = chunks.start, 1 + bucket, low
                    self._learn(tables, pool.rows[part], pool.columns[part], draws, column, rate)

            run_each(train, len(met))
        return len(pool)

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

    def _loss(self, chunk: int) -> float:
        """Return the mean loss of some pairs of a chunk that is about to be trained, all in one block or not."""
        centres, contexts = (np.empty(self.loader.room, self.id_type) for _ in range(2))
        count = min(self.loader.fill(chunk, centres, contexts), _LOSS_PAIRS)
        n = self.grid.num_blocks
        losses, pairs = 0.0, 0
        for row in range(n):
            for column in range(n):
                here = (centres[:count] % n == row) & (contexts[:count] % n == column)
                own, others = centres[:count][here] // n, contexts[:count][here] // n
                if len(own):
                    drawn = self._draw_negatives(len(own), (chunk, -1, row * n + column), column)
                    samples = Samples(own, others, drawn)
                    found = self.model.loss(self.options, self.grid.meeting(row, column), samples)
                    losses, pairs = losses + found * len(own), pairs + len(own)
        loss = losses / max(1, pairs)
        if not np.isfinite(loss):
            raise RecipeError(
                f"the training diverged: the loss is {loss} after {self.progress.step} of {self.settings.num_pools} "
                f"pools; lower train.learning_rate (now {self.config.learning_rate:g})"
            )
        return loss

    # ---- checkpoints

    def _save_last(self) -> None:
        self._checkpoint_at = time.monotonic()
        self.journal.note_checkpoint()
        state = {
            "config_digest": self.job.digest,
            "progress": asdict(self.progress),
            "tables": {name: table.tensors() for name, table in self.grid.tables().items()},
        }
        checkpoint.save_atomic(state, self.job.work / LAST)

    def _restore(self) -> None:
        path = self.job.work / LAST
        if path.exists():
            state = checkpoint.load(path, self.job.digest, mapped=True)
            for name, table in self.grid.tables().items():
                table.restore(state["tables"][name])
            self.progress = Progress(**state["progress"])


def degrees(store: GraphStore) -> Array:
    """Return how many edges begin or end at each node, a loop twice: int64 (N,)."""
    into = np.diff(np.asarray(store["csc_indptr"]))
    return into if store.manifest.symmetric else into + np.diff(np.asarray(store["csr_indptr"]))
