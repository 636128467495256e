"""The training of a layout: points that begin somewhere sensible, and are moved sample by sample."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import numpy as np
import torch

from configs.errors import RecipeError
from configs.families.row_training import LayoutTrainConfig
from configs.registry import LOADERS
from models.kernels.tables.row_tables import RowTable
from models.layout.configs import LayoutConfig, Settled
from tasks.arrays import Array
from tasks.layout.edge_list import EdgeList
from tasks.layout.start import put_around
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.host_tables import set_around_table
from tasks.train.job import BEST, Job
from tasks.train.layout.first_points import earlier_points, first_points, scaled
from tasks.train.loaders.samples.pairs import PairData, PairLoader
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tasks.train.tables.block_files import Key
from tasks.train.tables.objective import PAIRS
from tasks.train.tables.pair_engine import PairEngine
from tasks.train.tables.place import RankDevice
from tasks.train.warm.earlier import DoesNotFitError

_WARM_RATE = 0.1
"""Of the learning rate, where points begin as an earlier layout has them: a nightly map shall not jump."""


class LayoutEngine(PairEngine):
    """Points that begin somewhere sensible, and are moved sample by sample."""

    options: LayoutConfig
    fate_of_isolated = "their points lie around the others"

    def __init__(self, job: Job[LayoutTrainConfig], ranks: Ranks, place: RankDevice | None = None) -> None:
        """See `BlockEngine`; what the recipe leaves to the model is settled first."""
        self.edges = EdgeList.of(GraphStore.open(job.graph))
        job, self.settled = settled_job(job, self.edges)
        super().__init__(job, ranks, place)

    def make_loader(self) -> PairLoader:
        """Return what makes pairs: of a graph's own edges by the degrees of their ends. Raises DataError."""
        data = PairData(self.edges.drawn_from(), derive_key(self.job.seed, PAIRS))
        loader: PairLoader = LOADERS.create(self.config.loader, data)
        return loader

    @cached_property
    def _first(self) -> Array:
        self.journal.write_progress("finding where points begin", force=True)
        if self.job.warm is not None:
            try:
                points = earlier_points(self.job.warm, self.store, self.options, self.job.seed)
                self.progress.cold_because = ""
                return points
            except DoesNotFitError as error:
                self.progress.cold_because = str(error)
        points = first_points(self.config.start, self.store, self.edges, self.options.dim, self.job.seed)
        return scaled(points, self.settled, self.edges)

    def rate(self, chunk: int) -> float:
        """Return the learning rate of a chunk: points that lay somewhere already shall not move far."""
        return super().rate(chunk) * (_WARM_RATE if self.progress.cold_because == "" else 1.0)

    def step(self) -> None:
        """Train a pool; whether earlier points are there is known before the first one, whose rate depends on it."""
        if self.job.warm is not None and self.progress.cold_because is None:
            _ = self._first
        super().step()

    def start(self, key: Key, table: RowTable) -> None:
        """Put the points of a block where they begin."""
        table.write(slice(None), self._first[key[1] :: self.grid.tables.num_blocks])

    def finish(self) -> None:
        """Write the points, with their mean at 0."""
        points = self.vectors()
        bad = int((~np.isfinite(points).all(1)).sum())
        if bad:
            raise RecipeError(
                f"model.name={self.job.model.name} gave {bad:,} of {len(points):,} points coordinates that are not "
                "finite: the training diverged. Lower train.learning_rate, which makes another training"
            )
        put_around(points, self.edges.alone(), self.job.seed, keep_directions=self.progress.cold_because == "")
        points -= points.mean(0, dtype=np.float64).astype(np.float32)
        manifest = self.store.manifest
        model = set_around_table(self.job.model, graph_facts(manifest), torch.from_numpy(points))
        self.progress.epoch = 1
        self.progress.take_score(0.0)
        checkpoint.save_atomic(checkpoint.best_state(model, self.job.digest, 1, 0.0), self.job.work / BEST)


def settled_job(job: Job[LayoutTrainConfig], edges: EdgeList) -> tuple[Job[LayoutTrainConfig], Settled]:
    """Return a job with what the model takes for a graph where the recipe says nothing, and all of that."""
    assert isinstance(job.model, LayoutConfig)
    settled = job.model.settled(edges.num_nodes, len(edges.indices), is_mesh=edges.is_mesh())
    numbers = {
        "learning_rate": job.train.learning_rate or settled.rate,
        "samples": job.train.samples or settled.samples,
    }
    return replace(job, model=settled.options, train=job.train.model_copy(update=numbers)), settled
