"""The training of vectors by relation: epochs of walks within each relation, and validation after each."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any, cast

import numpy as np
import torch

from configs.errors import DataError, RecipeError
from configs.families.row_training import MultiplexTrainConfig
from models.vectors.configs import GatneConfig
from tasks.arrays import Array
from tasks.processes.device import use_threads
from tasks.sampling.degrees import degrees, warn_of_isolated
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.walks.alias import alias_table, draw_many
from tasks.sampling.walks.pairs import expected_pairs, walk_pairs
from tasks.sampling.walks.random_walks import Walks
from tasks.storage.graph_facts import graph_facts, relations_of
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.host_tables import set_around_table
from tasks.train.job import BEST, LAST, Job
from tasks.train.multiplex.relations import RelationGraph, relation_graphs
from tasks.train.multiplex.vectors import RelationVectors
from tasks.train.state import checkpoint
from tasks.train.state.journal import Journal, Progress
from tasks.train.state.validation import Validation
from tasks.train.strategies.base import Ranks

_WALKS, _WINDOWS, _NEGATIVES, _NEIGHBORS = 11, 12, 13, 14
"""Purposes that keys are drawn for; `vectors` has the others."""


class Batches:
    """Pairs of all relations: walks of each, as many as its nodes ask for. A batch depends on its number alone."""

    def __init__(self, graphs: list[RelationGraph], names: list[str], train: MultiplexTrainConfig, seed: int) -> None:
        """Prepare the walks. Raises DataError: a relation without edges."""
        self.loader, self.seed = cast(Any, train.loader), seed
        options = self.loader
        self.walks: list[Walks] = []
        for number, graph in enumerate(graphs):
            if not len(graph.indices):
                raise DataError(f"relation {names[number]} has no edge to walk along: leave it out")
            weight = graph.weight if options.edge_weights else None
            self.walks.append(
                Walks(
                    graph.indptr,
                    graph.indices,
                    key=derive_key(seed, _WALKS, number),
                    length=options.length,
                    by_degree=options.start == "degree",
                    weight=weight,
                    p=options.p,
                    q=options.q,
                )
            )
        starts = np.array([len(walks.starts) for walks in self.walks])
        each = expected_pairs(options.length, options.window, options.forward, options.shrink)
        wanted = train.batch_size / each * starts / starts.sum()
        self.counts = np.clip(np.rint(wanted), 1, train.walks * starts).astype(np.int64)
        """Walks of a batch, by relation."""
        self.an_epoch = int(np.ceil(train.walks * starts / self.counts).max())
        """Batches of an epoch."""

    def pairs(self, number: int) -> tuple[Array, Array, Array]:
        """Return a batch's centres, relations and contexts, (n,) each."""
        options, parts = self.loader, []
        for relation, (walks, count) in enumerate(zip(self.walks, self.counts.tolist(), strict=True)):
            tokens = np.empty((count, options.length), walks.indices.dtype)
            first = number * count
            walks.fill(first, tokens)
            key = derive_key(self.seed, _WINDOWS, relation)
            near = {"forward": options.forward, "shrink": options.shrink}
            centres, contexts = walk_pairs(tokens, options.window, **near, key=key, first=first)
            parts.append((centres, np.full(len(centres), relation, np.int32), contexts))
        centres, relations, contexts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return centres, relations, contexts


class MultiplexTrainer:
    """One training."""

    def __init__(self, job: Job[MultiplexTrainConfig]) -> None:
        """Open the graph, draw the rows, and take over the last checkpoint. Raises DataError."""
        self.job, self.train, self.config = job, job.train, cast(GatneConfig, job.model)
        use_threads(job.train.threads)
        self.store = GraphStore.open(job.graph)
        manifest = self.store.manifest
        graphs = relation_graphs(self.store)
        self.batches = Batches(graphs, relations_of(manifest), job.train, job.seed)
        self.negatives = alias_table(degrees(self.store) ** self.config.negative_power)
        self.rows = RelationVectors(self.config, graphs, manifest.num_nodes, job.train.learning_rate, job.seed)
        self.progress = Progress()
        if (job.work / LAST).exists():
            state = checkpoint.load(job.work / LAST, job.digest)
            with checkpoint.going_on_from(job.work / LAST):
                self.progress = Progress(**state["progress"])
                self.rows.restore(state["rows"])
        else:
            warn_of_isolated(self.store, "their vectors are made of what they are drawn at first")
        total = self.batches.an_epoch * job.train.epochs
        self.journal = Journal(job.work, self.progress, total, job.train.epochs, 1, writes=True, unit="pairs")
        self.validation = Validation(job, Ranks(), self.store, torch.device("cpu"))
        self._checkpoint_at = time.monotonic()

    def run(self) -> None:
        """Train to the end, and write the outcome. Raises RecipeError: it diverged."""
        progress = self.progress
        patience = self.train.patience or self.train.epochs
        while progress.epoch < self.train.epochs and progress.evaluations_without_gain < patience:
            while progress.step_in_epoch < self.batches.an_epoch:
                self._step()
                if time.monotonic() - self._checkpoint_at > 60 * self.train.checkpoint_minutes:
                    self._save()
            self._end_epoch()
            self._save()
        self.journal.finish(self.rows.num_parameters, "cpu")

    def _step(self) -> None:
        progress, began = self.progress, time.perf_counter()
        number = progress.step
        centres, relations, contexts = self.batches.pairs(number)
        negatives = np.empty((len(centres), self.config.negatives), centres.dtype)
        draw_many(self.negatives, np.uint64(derive_key(self.job.seed, _NEGATIVES, number)), negatives.reshape(-1))
        random = np.random.Generator(np.random.Philox(key=derive_key(self.job.seed, _NEIGHBORS, number)))
        loss = self.rows.learn(centres, relations, contexts, negatives, random, self.train.pair_rate)
        progress.step += 1
        progress.step_in_epoch += 1
        seconds = time.perf_counter() - began
        for place, more in enumerate((loss * len(centres), len(centres), 0.0, seconds)):
            progress.epoch_totals[place] += more
        for place, more in enumerate((len(centres), 0.0, seconds)):
            progress.run_totals[place] += more
        self.journal.write_progress()

    def _end_epoch(self) -> None:
        """Measure the validation split; keep the vectors if they are the best so far."""
        progress, job = self.progress, self.job
        table = self.rows.vectors()
        if not bool(table.isfinite().all()):
            raise RecipeError(
                f"model.name={job.model.name} gave vectors that are not finite: the training diverged. Lower "
                "train.learning_rate or train.pair_rate"
            )
        model = set_around_table(job.model, graph_facts(self.store.manifest), table)
        model.lengths = table.norm(dim=1)
        metrics = self.validation.measure(model)
        score = self.validation.score(metrics)
        progress.epoch += 1
        progress.step_in_epoch = 0
        progress.evaluations_without_gain += 1
        loss, pairs, _, _ = progress.epoch_totals
        progress.epoch_totals = [0.0, 0.0, 0.0, 0.0]
        self.journal.record({"train/loss": loss / pairs, **{f"valid/{name}": value for name, value in metrics.items()}})
        if score > progress.best_metric:
            progress.best_metric, progress.best_epoch, progress.evaluations_without_gain = score, progress.epoch, 0
            checkpoint.save_atomic(checkpoint.best_state(model, job.digest, progress.epoch, score), job.work / BEST)

    def _save(self) -> None:
        self._checkpoint_at = time.monotonic()
        self.journal.note_checkpoint()
        state = {"config_digest": self.job.digest, "progress": asdict(self.progress), "rows": self.rows.state()}
        checkpoint.save_atomic(state, self.job.work / LAST)
