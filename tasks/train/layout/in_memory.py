"""A layout in one process and without files: what an evaluation, a command or a benchmark draws at once."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from configs.errors import RecipeError
from configs.registry import MODELS, SCHEDULES
from models.kernels.tables.row_layout import Rule
from models.kernels.tables.row_tables import RowTable
from models.layout.configs import LayoutConfig
from tasks.arrays import Array
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.train.loaders.samples.edges import EdgePairs
from tasks.train.loaders.samples.pair_configs import EdgesConfig
from tasks.train.loaders.samples.pairs import PairData
from tasks.train.strategies.base import Ranks
from tasks.train.tables.block_files import BlockFiles, Key
from tasks.train.tables.grid import Grid, Tables
from tasks.train.tables.learning_engine import LearningEngine
from tasks.train.tables.negatives import Negatives
from tasks.train.tables.objective import Objective

_PAIRS = 1
"""Purpose that a key is drawn for, as in the training of tables."""
_STEPS = 100
"""Of a layout: how often it tells how far it is."""


@dataclass(frozen=True)
class EdgeList:
    """A graph's edges as CSR, each in both directions."""

    indptr: NDArray[np.int64]
    """(N + 1,)."""
    indices: Array
    """int32 or int64 (E,)."""
    weight: NDArray[np.float32] | None = None
    """float32 (E,); None: all alike."""

    @property
    def num_nodes(self) -> int:
        """Nodes, those without edges included."""
        return len(self.indptr) - 1

    def store(self) -> Any:
        """Return it as what a loader of pairs reads a graph from."""
        arrays = {"csr_indptr": self.indptr, "csr_indices": self.indices}
        found = _Arrays(arrays if self.weight is None else {**arrays, "edge_weight": self.weight})
        found.manifest = SimpleNamespace(symmetric=True, dataset="the graph")
        return found


class _Arrays(dict[str, Array]):
    manifest: SimpleNamespace


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
        start: coordinates with a standard deviation of about 1, float (N, dim); they are scaled to the model's start.
        seed: of all draws. With one thread the same coordinates come of it.
        rate: peak learning rate; None: the model's usual one.
        samples: of all points together; None: the model's usual number.
        say: called with steps that are done, and all steps.

    Raises:
        RecipeError: the coordinates are not finite.
    """
    model: Any = MODELS.get(options.name)
    with tempfile.TemporaryDirectory() as folder:
        tables = Tables(options.pairings(), edges.num_nodes, 1, "float32", Rule("sgd"), seed)

        def begin(key: Key, table: RowTable) -> None:
            table.write(slice(None), np.asarray(start * options.start_size, np.float32))

        grid = Grid(tables, Ranks(), BlockFiles(Path(folder)), start=begin)
        data = PairData(cast(Any, edges.store()), derive_key(seed, _PAIRS))
        loader = EdgePairs(EdgesConfig(), data)
        negatives = Negatives(np.diff(edges.indptr), 1, options.negative_power)
        engine = LearningEngine(Objective(model, options, loader, negatives, seed), grid)
        wanted = samples or max(options.usual_samples * edges.num_nodes, options.least_samples)
        total = max(1, math.ceil(wanted / loader.expected))
        schedule = SCHEDULES.create(SCHEDULES.config("linear"))
        peak = rate or options.usual_rate
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
    return points - points.mean(0, dtype=np.float64).astype(np.float32)
