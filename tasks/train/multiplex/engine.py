"""The training of vectors by relation: epochs of walks within each relation, and validation after each."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from configs.errors import RecipeError
from configs.families.row_training import MultiplexTrainConfig
from models.vectors.configs import GatneConfig
from tasks.processes.device import use_threads
from tasks.sampling.degrees import degrees, warn_of_isolated
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.walks.alias import alias_table, draw_many
from tasks.storage.graph_facts import graph_facts, relations_of
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.host_tables import set_around_table
from tasks.train.job import BEST, Job
from tasks.train.multiplex.vectors import RelationVectors, RelationWalks, relation_graphs
from tasks.train.run import Engine, RoundTotals
from tasks.train.state import checkpoint
from tasks.train.state.validation import Validation
from tasks.train.strategies.base import Ranks

_NEGATIVES, _NEIGHBORS = 13, 14
"""Purposes that keys are drawn for; `relations` and `vectors` have the others."""


class RelationEngine(Engine):
    """One training, in one process on the CPU. A round is an epoch of walks."""

    unit = "pairs"
    eval_every = checkpoint_every = 1
    best_is_file = True

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
        return metrics, self.validation.evaluator.score(metrics)

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
