"""The family of models that are points in two or three dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.errors import RecipeError
from configs.families.row_training import LayoutTrainConfig
from configs.registry import MODELS
from configs.schema import Recipe
from models.facts import GraphFacts
from models.layout.configs import LayoutConfig
from tasks.sizes import PROCESS_BYTES, Counts
from tasks.stage import StageContext
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import Job
from tasks.train.tables.family import check_grid, train_blocks

if TYPE_CHECKING:
    from tasks.train.strategies.base import Ranks

_BYTES_AN_EDGE = 40
"""In a peak: the edges, their weights, and the tables that they are drawn from."""
_LEAST_VECTORS = 4
"""Of fewer no neighbourhood can be compared (`tasks/layout/quality/measure.py`), and none becomes champion."""
_START_NUMBERS = 12
"""A point's, of the iterations that find where points begin."""


def announce(context: StageContext, recipe: Recipe, manifest: PartitionManifest) -> None:
    """Refuse what cannot work before any process starts, and say what will run. Raises RecipeError."""
    assert isinstance(recipe.train, LayoutTrainConfig)
    if not manifest.num_edges:
        raise RecipeError(
            f"{manifest.dataset} has no edges to lay out; look at preprocess and components, or give vectors "
            "(dataset.name=vectors), whose nearest neighbours become edges"
        )
    if recipe.neighbors is not None and manifest.num_nodes < _LEAST_VECTORS:
        raise RecipeError(
            f"{manifest.dataset} has {manifest.num_nodes} vectors, and of fewer than {_LEAST_VECTORS} nothing says how "
            "good a layout is; give more rows"
        )
    if recipe.train.start == "pca" and not manifest.feature_dim:
        raise RecipeError(
            f"train.start=pca needs vectors, and nodes of {manifest.dataset} have none; leave it out: then "
            "points begin at their distances to some nodes"
        )
    check_grid(recipe.train, manifest, shared=True)
    context.message(f"{recipe.model.name}, {getattr(recipe.model, 'dim', 2)} dimensions, {recipe.train.strategy.name}")


def train(job: Job[LayoutTrainConfig], ranks: Ranks) -> None:
    """Train to the end, from the last checkpoint if there is one. Raises RecipeError."""
    from tasks.train.layout.engine import LayoutEngine
    from tasks.train.tables.device import why_no_gpu

    train_blocks(LayoutEngine, job, ranks, why_no_gpu(MODELS.get(job.model.name)))


def size(home: Home, recipe: Recipe, facts: GraphFacts, counts: Counts, num_parts: int) -> tuple[str, int] | None:
    """Return the points' numbers, in words, and a training's peak memory in bytes."""
    assert isinstance(recipe.model, LayoutConfig)
    numbers = recipe.model.dim * counts.num_nodes
    # Of vectors each edge stands twice, and before they are searched only the recipe says how many there will be.
    num_edges = counts.num_edges
    if recipe.neighbors is not None and not num_edges:
        num_edges = 2 * recipe.neighbors.num_neighbors * counts.num_nodes
    needed = 4 * _START_NUMBERS * counts.num_nodes + _BYTES_AN_EDGE * num_edges
    return f"{numbers:,} numbers", 2 * PROCESS_BYTES * recipe.train.num_ranks + needed
