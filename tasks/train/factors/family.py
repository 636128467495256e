"""The family of models whose vectors are computed from the graph at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.errors import RecipeError
from configs.families.row_training import FactorTrainConfig
from configs.schema import Recipe
from models.facts import GraphFacts
from models.vectors.configs import VectorModelConfig
from tasks.sizes import PROCESS_BYTES, Counts
from tasks.stage import StageContext
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import Job

if TYPE_CHECKING:
    from tasks.train.strategies.base import Ranks

_ARRAYS = 8
"""Arrays of a vector a node that stand side by side, and products among them."""
_BYTES_AN_EDGE = 24


def announce(context: StageContext, recipe: Recipe, manifest: PartitionManifest) -> None:
    """Refuse what cannot work before any process starts, and say what will run. Raises RecipeError."""
    assert isinstance(recipe.model, VectorModelConfig)
    recipe.model.check_task(manifest.task)
    if not manifest.num_edges:
        raise RecipeError(f"{manifest.dataset} has no edges to factor; look at preprocess and components")
    context.message(f"{recipe.model.name}, at once")


def train(job: Job[FactorTrainConfig], ranks: Ranks) -> None:
    """Compute the vectors. Raises RecipeError."""
    from tasks.train import run
    from tasks.train.factors.engine import FactorEngine

    run.train(lambda: FactorEngine(job, ranks), ranks)


def size(home: Home, recipe: Recipe, facts: GraphFacts, counts: Counts, num_parts: int) -> tuple[str, int] | None:
    """Return the vectors' numbers, in words, and the peak memory on this machine's CPU in bytes."""
    dim: int = getattr(recipe.model, "dim", 1)
    needed = 4 * _ARRAYS * dim * counts.num_nodes + _BYTES_AN_EDGE * counts.num_edges
    return f"{dim * counts.num_nodes:,} numbers", 2 * PROCESS_BYTES + needed
