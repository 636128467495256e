"""The training of a layout: points that begin somewhere sensible, and are moved sample by sample."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from configs.errors import IntegrityError, RecipeError
from configs.families.row_training import LayoutTrainConfig
from configs.registry import LOADERS, MODELS, SCHEDULES
from models.kernels.tables.row_layout import UpdateRule
from models.kernels.tables.row_tables import RowTable
from models.kernels.threads import num_threads
from models.layout.configs import LayoutConfig, Settled
from tasks.arrays import Array
from tasks.layout.edge_list import EdgeList
from tasks.layout.start import coarse_start, pca_start, put_around
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.train.embeddings.host_tables import TABLE, set_around_table
from tasks.train.job import BEST, Job, WarmStart
from tasks.train.loaders.base import SampleData
from tasks.train.loaders.configs import EdgePassesConfig
from tasks.train.loaders.pairs import EdgePassPairs, PairLoader
from tasks.train.state import checkpoint
from tasks.train.strategies.base import Ranks
from tasks.train.tables.block_engine import PairEngine
from tasks.train.tables.device import RankDevice
from tasks.train.tables.grid import BlockFiles, Grid, Key, TableSpec
from tasks.train.tables.objective import PAIRS, Negatives, PairLearning, SampleStepper
from tasks.train.warm.earlier import DoesNotFitError, earlier_graph, same_of_all

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
        data = SampleData(self.edges.drawn_from(), derive_key(self.job.seed, PAIRS))
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


_ROUNDS = 10
"""Steps along edges in which new points find their place among earlier ones."""
_ASIDE = 0.01
"""How far apart points of one place begin, of the layout's standard deviation."""


def first_points(start: str, store: GraphStore, edges: EdgeList, dim: int, seed: int) -> Array:
    """Return where points begin, in whatever size: float (N, dim), the same on all ranks; `start`: `train.start`."""
    if start == "auto":
        start = "pivots" if edges.of_graph or not store.manifest.feature_dim else "pca"
    if start == "pca":
        return pca_start(store["feat"], dim, seed)
    return coarse_start(edges.indptr, edges.indices, dim, seed=seed, threads=num_threads())


def scaled(points: Array, settled: Settled, edges: EdgeList) -> NDArray[np.float32]:
    """Return points with their mean at 0, and the size at which the model begins: float32 (N, dim)."""
    centred = points - points.mean(0)
    if settled.edge_length is None:
        size, size_at_start = float(centred.std(0).max()), settled.options.start_size
    else:
        size, size_at_start = edges.edge_length(centred), settled.edge_length
    return np.asarray(centred * (size_at_start / size if size > 0 else 1.0), np.float32)


def earlier_points(warm: WarmStart, store: GraphStore, options: LayoutConfig, seed: int) -> Array:
    """Return where points lay in an earlier layout, float32 (N, dim); new ones lie among their neighbours.

    Raises DoesNotFitError: it was of another dimension, or shares no point with this one.
    """
    try:
        points = checkpoint.load(warm.checkpoint, mapped=True)["model"][TABLE].numpy()
    except IntegrityError as error:
        raise DoesNotFitError(str(error)) from error
    if points.shape[1] != options.dim:
        raise DoesNotFitError(f"it has {points.shape[1]} dimensions, here there are {options.dim}")
    before = earlier_graph(warm)
    rows, earlier_rows = same_of_all(warm, before, store)
    if not len(rows):
        raise DoesNotFitError("none of its points is here")
    num_nodes = store.manifest.num_nodes
    placed, is_placed = np.zeros((num_nodes, options.dim), np.float32), np.zeros(num_nodes, bool)
    placed[rows], is_placed[rows] = points[earlier_rows], True
    place_among_neighbors(placed, is_placed, store, seed)
    return placed


def place_among_neighbors(
    points: NDArray[np.float32], is_placed: NDArray[np.bool_], store: GraphStore, seed: int
) -> None:
    """Put each point that is not placed at the mean of its neighbours that are, in place; outwards step by step.

    Points that no edge joins to placed ones lie anywhere among these, those without an edge around all others.
    """
    from scipy import sparse

    size, dim = points.shape
    weight = store.get("edge_weight")
    data = np.ones(store.manifest.num_edges, np.float32) if weight is None else np.asarray(weight, np.float32)
    edges = sparse.csr_matrix((data, np.asarray(store["csc_indices"]), np.asarray(store["csc_indptr"])), (size, size))
    rng = np.random.default_rng(seed)
    alone = ~is_placed & (edges.getnnz(axis=0) + edges.getnnz(axis=1) == 0)
    spread = points[is_placed].std()
    for _ in range(_ROUNDS):
        new = np.flatnonzero(~is_placed)
        if not len(new):
            return
        edges_of_new = edges[new]
        total = edges_of_new @ is_placed.astype(np.float32)
        near = new[total > 0]
        if not len(near):
            break
        means = (edges_of_new[total > 0] @ (points * is_placed[:, None])) / total[total > 0, None]
        points[near] = means + rng.standard_normal((len(near), dim)) * _ASIDE * spread
        is_placed[near] = True
    left = np.flatnonzero(~is_placed)
    points[left] = points[rng.choice(np.flatnonzero(is_placed), len(left))]
    points[left] += rng.standard_normal((len(left), dim)) * spread
    put_around(points, alone, seed)


_STEPS = 100
"""Of a layout: how often it tells how far it is."""


def lay_out(
    edges: EdgeList,
    options: LayoutConfig,
    start: Array,
    *,
    seed: int = 0,
    rate: float | None = None,
    samples: float | None = None,
    say: Callable[[int, int], None] = lambda done, total: None,
) -> NDArray[np.float32]:
    """Return the coordinates of a graph's nodes, float32 (N, dim): those that a recipe of such a model comes to.

    Args:
        edges: what draws nodes to each other; at least one.
        options: of the model, `LargeVisConfig` and its like.
        start: coordinates, float (N, dim); they are scaled as the model has it.
        seed: of all draws. With one thread the same coordinates come of it.
        rate: peak learning rate; None: the model's usual one.
        samples: of all points together; None: the model's usual number.
        say: called with steps that are done, and all steps.

    Raises:
        RecipeError: the coordinates are not finite.
    """
    model: Any = MODELS.get(options.name)
    settled = options.settled(edges.num_nodes, len(edges.indices), is_mesh=edges.is_mesh())
    options, peak = settled.options, rate or settled.rate
    begins = scaled(start, settled, edges)
    with tempfile.TemporaryDirectory() as folder:
        tables = TableSpec(options.pairings(), edges.num_nodes, 1, "float32", UpdateRule("sgd"), seed)

        def begin(key: Key, table: RowTable) -> None:
            table.write(slice(None), begins)

        grid = Grid(tables, Ranks(), BlockFiles(Path(folder)), start=begin)
        loader = EdgePassPairs(
            EdgePassesConfig(name="edge_passes"), SampleData(edges.drawn_from(), derive_key(seed, PAIRS))
        )
        negatives = Negatives(np.diff(edges.indptr), 1, options.negative_power)
        engine = SampleStepper(PairLearning(model, options, loader, negatives, seed), grid)
        total = max(1, math.ceil((samples or settled.samples) / loader.expected))
        schedule = SCHEDULES.create(SCHEDULES.config("linear"))
        rates = np.array([peak * schedule.factor(chunk / total) for chunk in range(total)])
        grid.load(grid.keys(0, 0), to_change=True)
        for step in range(_STEPS):
            chunks = range(total * step // _STEPS, total * (step + 1) // _STEPS)
            if len(chunks):
                engine.train_chunks(chunks, rates[chunks.start : chunks.stop])
            say(step + 1, _STEPS)
        points = grid.block(grid.keys(0, 0)[0]).read()
    if not np.isfinite(points).all():
        raise RecipeError(f"the layout diverged: some coordinates are not finite; lower the rate (now {peak:g})")
    put_around(points, edges.alone(), seed)
    return points - points.mean(0, dtype=np.float64).astype(np.float32)
