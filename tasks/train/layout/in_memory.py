"""A layout in one process and without files: what an evaluation, a command or a benchmark draws at once."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from configs.errors import RecipeError
from configs.registry import MODELS, SCHEDULES
from models.kernels.tables.row_layout import UpdateRule
from models.kernels.tables.row_tables import RowTable
from models.layout.configs import LayoutConfig
from tasks.arrays import Array
from tasks.layout.edge_list import EdgeList
from tasks.layout.start import put_around
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.train.layout.first_points import scaled
from tasks.train.loaders.samples.edge_passes import EdgePassPairs
from tasks.train.loaders.samples.pair_configs import EdgePassesConfig
from tasks.train.loaders.samples.pairs import PairData
from tasks.train.strategies.base import Ranks
from tasks.train.tables.block_files import BlockFiles, Key
from tasks.train.tables.grid import Grid, TableSpec
from tasks.train.tables.objective import PAIRS, Negatives, PairLearning
from tasks.train.tables.sample_stepper import SampleStepper

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
        loader = EdgePassPairs(EdgePassesConfig(), PairData(edges.drawn_from(), derive_key(seed, PAIRS)))
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
