"""The training of a knowledge graph's rows: epochs of triples, and validation by filtered ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import numpy as np
import torch

from configs.registry import LOADERS, LOSSES
from models.kernels.dense.products import products_in
from models.kernels.tables.row_layout import UpdateRule
from models.kernels.tables.row_tables import RowTable
from models.kernels.threads import kernels_alone
from models.knowledge.base import KnowledgeModel
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.storage.graph_facts import graph_facts
from tasks.train.embeddings.host_tables import set_around_table
from tasks.train.job import BEST
from tasks.train.knowledge.all_entities import AllEntitiesStepper
from tasks.train.knowledge.learning import TripleLearning
from tasks.train.knowledge.relations import Projection, RelationRows, SharedRows, TripleTask
from tasks.train.knowledge.validation import GridEntities, TripleValidation
from tasks.train.loaders.base import SampleData
from tasks.train.loaders.triples import AllEntities, DrawnEntities
from tasks.train.ranks.collectives import from_main
from tasks.train.state import checkpoint
from tasks.train.tables.block_engine import BlockEngine
from tasks.train.tables.device import ResidentBlocks
from tasks.train.tables.grid import Key, Saved
from tasks.train.tables.objective import SampleStepper, Stepper, one_by_one
from tasks.train.tables.settings import Settings
from tasks.train.warm.earlier import DoesNotFitError, EarlierRows, earlier_rows

_TRIPLES, _RELATIONS = 1, 6
"""Purposes that keys are drawn for; `learning` has the others."""
_DRAW_ROWS = 1 << 14


class TripleEngine(BlockEngine):
    """The blocks of entities of one rank, and the rows of relations."""

    unit = "triples"
    deals = True
    model: type[KnowledgeModel]

    def make_loader(self) -> Any:
        """Return what makes batches. Raises DataError: there is no training triple."""
        return LOADERS.create(self.config.loader, SampleData(self.store, derive_key(self.job.seed, _TRIPLES)))

    def usual_settings(self, num_blocks: int, *, beyond_memory: bool) -> Settings:
        """Return a pool for each epoch, or as large as the recipe says.

        Validation MRR of FB15k-237 after 5 epochs in 4 x 4 blocks: 1 pool an epoch .296, 4 pools .295, 8 pools .299,
        33 pools .298.
        """
        chunks, asked = self.loader.chunks_an_epoch, self.config.strategy.pool
        parts = max(1, round(chunks * self.loader.room / asked)) if asked else 1
        return Settings(num_blocks, self.config.epochs * chunks, -(-chunks // min(parts, chunks)))

    def make_stepper(self) -> Stepper:
        """Return what takes the steps."""
        manifest, seed, config = self.store.manifest, self.job.seed, self.config
        rule, device = UpdateRule(config.optimizer), self.step_device
        degree = np.bincount(np.asarray(self.store["train_edges"]).reshape(-1), minlength=manifest.num_nodes)
        uses = np.bincount(self.store["train_relation"], minlength=manifest.num_relations)
        feat, relation_feat = (
            self.store.get(name) if self.options.features else None for name in ("feat", "relation_feat")
        )
        of_relations = None if relation_feat is None else (relation_feat, uses)
        begin = derive_key(seed, _RELATIONS)
        self.relations = RelationRows(
            self.model, self.options, manifest.num_relations, rule, begin, of_relations, device
        )
        self.projection = None if feat is None else Projection(feat, degree, self.options.dim, rule, device)
        if self._earlier is not None:
            self.relations.begin_with(self._earlier.relations, self._earlier.relation_place)
        self.best: dict[str, Any] = {}
        self.rate_drops = 0
        # The best rows lie in the last checkpoint.
        self.eval_every = self.checkpoint_every = config.eval_every
        self.validation = None
        if self.ranks.is_main:
            self.validation = TripleValidation(self.job, self.store, self.model, self.settings.num_blocks)
            print(f"triples: {manifest.splits['train']:,}, of {manifest.num_relations:,} relations")
        loss = LOSSES.create(config.loss)
        task = TripleTask(self.model, self.options, self.loader, loss, self.relations, self.projection, seed)
        meet = None if device is None else ResidentBlocks(self.grid, device).meeting
        if isinstance(self.loader, AllEntities):
            return AllEntitiesStepper(task, self.grid, meet)
        loss.entities_a_drawn = manifest.num_nodes / config.loader.negatives
        drawn = DrawnEntities(degree, self.settings.num_blocks, config.loader.power)
        return SampleStepper(TripleLearning(task, drawn), self.grid, one_by_one, meet)

    def start(self, key: Key, table: RowTable) -> None:
        """Draw the rows of entities as the model has them begin."""
        generator = torch.Generator().manual_seed(derive_key(self.job.seed, _RELATIONS, 1 + key[1]))
        for low in range(0, table.num_rows, _DRAW_ROWS):
            rows = torch.empty(min(_DRAW_ROWS, table.num_rows - low), table.width)
            self.model.start_entities(self.options, rows, generator)
            if self._earlier is not None:
                nodes = key[1] + self.settings.num_blocks * np.arange(low, low + len(rows))
                self._earlier.fill(nodes, rows.numpy())
            table.write(slice(low, low + len(rows)), rows.numpy())

    @cached_property
    def _earlier(self) -> EarlierRows | None:
        """The rows of the earlier snapshot that this training begins with; `progress` says why not."""
        if self.job.warm is None:
            return None
        try:
            rows = earlier_rows(self.job.warm, self.store, self.options)
            self.progress.cold_because = ""
            return rows
        except DoesNotFitError as error:
            self.progress.cold_because = str(error)
            return None

    def rate(self, chunk: int) -> float:
        """Return the learning rate of a chunk: less where validation did not get better."""
        rate = super().rate(chunk)
        return rate * self.config.plateau.factor**self.rate_drops if self.config.plateau else rate

    @contextmanager
    def taking_steps(self) -> Iterator[None]:
        """Have products computed as the recipe says; validation's are not."""
        are_long = isinstance(self.loader, AllEntities)  # torch's threads have enough to do with all entities
        with products_in(self.config.products), nullcontext() if are_long else kernels_alone():
            yield

    def after_grid_round(self) -> None:
        """Share what all ranks have whole."""
        if self.ranks.world_size > 1:
            for rows in self._shared_rows().values():
                rows.share(self.ranks.world_size)

    # ---- validation

    def epochs_done(self) -> int:
        """Count whole passes."""
        chunks = min(self.settings.total_chunks, self.progress.step * self.settings.chunks_a_pool)
        return int(chunks // self.loader.chunks_an_epoch)

    def validate(self) -> tuple[dict[str, float], float]:
        """Rank validation triples."""
        self.grid.version = self.progress.step
        in_memory = self.ranks.world_size == 1 and self.grid.room is None
        files = None if in_memory else self.grid.save()
        metrics: dict[str, float] = {}
        score = 0.0
        if self.validation is not None:
            metrics = self.validation.measure(GridEntities(self.grid, files, self.projection), self.relations.rows())
            score = self.validation.evaluator.score(metrics)
        return from_main(metrics), from_main(score)

    def judge(self, *, is_best: bool) -> None:
        """Keep the best rows; let the rate fall where others were the best for too long."""
        progress, plateau = self.progress, self.config.plateau
        if self.validation is not None:
            name = self.validation.evaluator.metric
            self.journal.note = f"best valid {name} {abs(progress.best_metric):.4f}, of epoch {progress.best_epoch}"
        if is_best:
            projection = None if self.projection is None else self.projection.rows.state()
            self.best = {"files": self.grid.save(), "relations": self.relations.rows(), "projection": projection}
        elif plateau and progress.evaluations_without_gain % plateau.patience == 0:
            self.rate_drops += 1

    # ---- checkpoints

    def own_state(self) -> dict[str, Any]:
        """Return rows that all ranks have, and the best ones."""
        shared = {name: rows.state() for name, rows in self._shared_rows().items()}
        return {"shared": shared, "best": self.best, "rate_drops": self.rate_drops}

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `own_state` returned."""
        for name, rows in self._shared_rows().items():
            rows.restore(state["shared"][name])
        self.best, self.rate_drops = state["best"], state["rate_drops"]

    def _shared_rows(self) -> dict[str, SharedRows]:
        """Return what every rank has whole."""
        return self.relations.parts() | ({} if self.projection is None else {"projection": self.projection.rows})

    def kept_files(self, state: dict[str, Any]) -> Saved:
        """Return the files of the best rows."""
        files: Saved = state["best"].get("files", {})
        return files

    def finish(self) -> None:
        """Make the model of the best rows and write it."""
        self.journal.write_progress("making the model of the best rows", force=True)
        num_nodes, dim = self.store.manifest.num_nodes, self.options.dim
        table = self.allocate("vectors", num_nodes * dim, np.float32).reshape(num_nodes, dim)
        if self.projection is not None:
            self.projection.rows.restore(self.best["projection"])
        best = GridEntities(self.grid, self.best["files"], self.projection)
        best.copy_to(table)
        model = set_around_table(self.job.model, graph_facts(self.store.manifest), torch.from_numpy(table))
        assert isinstance(model, KnowledgeModel)
        model.relations.copy_(self.best["relations"])
        assert self.validation is not None
        model.calibration.copy_(self.validation.calibrate(best, model.relations))
        progress = self.progress
        state = checkpoint.best_state(model, self.job.digest, progress.best_epoch, progress.best_metric)
        checkpoint.save_atomic(state, self.job.work / BEST)

    @property
    def num_parameters(self) -> int:
        """Those of entities and of relations."""
        return self.grid.tables.numbers + self.relations.table.num_rows * self.relations.table.width
