"""The training of vectors by relation: epochs of walks within each relation, and validation after each."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from configs.errors import DataError, RecipeError
from configs.row_training import MultiplexTrainConfig
from models.vector_configs import GatneConfig
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
from tasks.train.job import BEST, Job
from tasks.train.multiplex.relations import RelationGraph, relation_graphs
from tasks.train.multiplex.vectors import RelationVectors
from tasks.train.run import Engine, RoundTotals
from tasks.train.state import checkpoint
from tasks.train.state.validation import Validation
from tasks.train.strategies.base import Ranks

_WALKS, _WINDOWS, _NEGATIVES, _NEIGHBORS = 11, 12, 13, 14
"""Purposes that keys are drawn for; `vectors` has the others."""


class RelationWalks:
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
        self.batches_an_epoch = int(np.ceil(train.walks * starts / self.counts).max())
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


class RelationEngine(Engine):
    """One training, in one process on the CPU. A round is an epoch of walks."""

    unit = "pairs"
    eval_every = checkpoint_every = 1

    def __init__(self, job: Job[MultiplexTrainConfig], ranks: Ranks) -> None:
        """Open the graph, draw the rows, and take over the last checkpoint. Raises DataError."""
        super().__init__(job, ranks)
        self.train, self.config = job.train, cast(GatneConfig, job.model)
        use_threads(job.train.threads)
        self.store = GraphStore.open(job.graph)
        manifest = self.store.manifest
        graphs = relation_graphs(self.store)
        self.walks = RelationWalks(graphs, relations_of(manifest), job.train, job.seed)
        self.negatives = alias_table(degrees(self.store) ** self.config.negative_power)
        self.rows = RelationVectors(self.config, graphs, manifest.num_nodes, job.train.learning_rate, job.seed)
        if self.last:
            with checkpoint.going_on_from(self.last_path):
                self.rows.restore(self.last["rows"])
            self.last = None
        else:
            warn_of_isolated(self.store, "their vectors are made of what they are drawn at first")
        self.steps_a_round = self.walks.batches_an_epoch
        self.begin(self.steps_a_round * job.train.epochs, job.train.epochs)
        self.validation = Validation(job, ranks, self.store, self.device)

    def step(self) -> None:
        """Learn from a batch of pairs."""
        number = self.progress.step
        centres, relations, contexts = self.walks.pairs(number)
        negatives = np.empty((len(centres), self.config.negatives), centres.dtype)
        draw_many(self.negatives, np.uint64(derive_key(self.job.seed, _NEGATIVES, number)), negatives.reshape(-1))
        random = np.random.Generator(np.random.Philox(key=derive_key(self.job.seed, _NEIGHBORS, number)))
        loss = self.rows.learn(centres, relations, contexts, negatives, random, self.train.pair_rate)
        self.progress.count_step(loss * len(centres), len(centres))

    def epochs_done(self) -> int:
        """Count a round's epoch."""
        return self.progress.epoch + 1

    def end_round(self, totals: RoundTotals) -> dict[str, float]:
        """Say the mean loss."""
        return {"train/loss": totals.loss / totals.samples}

    def validate(self) -> tuple[dict[str, float], float]:
        """Make vectors of the rows and measure them. Raises RecipeError: they are not finite."""
        table = self.rows.vectors()
        if not bool(table.isfinite().all()):
            raise RecipeError(
                f"model.name={self.job.model.name} gave vectors that are not finite: the training diverged. Lower "
                "train.learning_rate or train.pair_rate"
            )
        self.measured: Any = set_around_table(self.job.model, graph_facts(self.store.manifest), table)
        self.measured.lengths = table.norm(dim=1)
        metrics = self.validation.measure(self.measured)
        return metrics, self.validation.score(metrics)

    def judge(self, *, is_best: bool) -> None:
        """Write the best vectors."""
        if is_best:
            progress = self.progress
            state = checkpoint.best_state(self.measured, self.job.digest, progress.epoch, progress.best_metric)
            checkpoint.save_atomic(state, self.job.work / BEST)
        del self.measured

    def state(self) -> dict[str, Any]:
        """Return what rows have learnt."""
        return {"rows": self.rows.state()}

    @property
    def num_parameters(self) -> int:
        """Those of rows, and what all nodes share."""
        return self.rows.num_parameters
