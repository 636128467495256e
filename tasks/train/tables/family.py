"""The family of models whose rows are learnt from samples."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from configs.errors import RecipeError
from configs.families.row_training import BlockTrainConfig, TableTrainConfig
from configs.registry import MODELS, STRATEGIES
from configs.schema import Recipe
from models.facts import GraphFacts
from models.vectors.configs import SampledModelConfig, VectorModelConfig
from tasks.sizes import Counts
from tasks.stage import StageContext
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import Job
from tasks.train.tables.settings import tables_bytes

if TYPE_CHECKING:
    from tasks.train.run import Engine
    from tasks.train.strategies.base import Ranks
    from tasks.train.strategies.block_grid import BlockGrid
    from tasks.train.tables.device import RankDevice


def announce(context: StageContext, recipe: Recipe, manifest: PartitionManifest) -> None:
    """Refuse what cannot work before any process starts, and say what will run. Raises RecipeError."""
    train = recipe.train
    assert isinstance(train, TableTrainConfig)
    assert isinstance(recipe.model, VectorModelConfig)
    recipe.model.check_task(manifest.task)
    if not manifest.num_edges:
        raise RecipeError(f"{manifest.dataset} has no edges to draw samples from; look at preprocess and components")
    assert isinstance(recipe.model, SampledModelConfig)
    check_grid(train, manifest, shared=any(pairing.shared for pairing in recipe.model.pairings()))
    context.message(f"{recipe.model.name}, {train.loader.name} loader, {train.strategy.name}")


def train(job: Job[TableTrainConfig], ranks: Ranks) -> None:
    """Train to the end, from the last checkpoint if there is one. Raises RecipeError."""
    from tasks.train.tables.block_engine import PairEngine
    from tasks.train.tables.device import why_no_gpu

    train_blocks(PairEngine, job, ranks, why_no_gpu(MODELS.get(job.model.name)))


def train_blocks(
    make: Callable[[Job[Any], Ranks, RankDevice], Engine], job: Job[Any], ranks: Ranks, why_no_gpu: str | None = None
) -> None:
    """Train one rank's blocks to the end. Raises RecipeError.

    `make` returns the engine; `why_no_gpu`: see `choose_place`. Whatever the place, blocks and samples travel between
    ranks through the CPUs' memory.
    """
    from tasks.train import run
    from tasks.train.tables.device import choose_place

    place = choose_place(job.train, ranks.local_rank, why_no_gpu)
    run.train(lambda: make(job, ranks, place), ranks)


def size(home: Home, recipe: Recipe, facts: GraphFacts, counts: Counts, num_parts: int) -> tuple[str, int] | None:
    """Return the tables' numbers, in words, and a training's peak memory on this machine's CPU in bytes."""
    train = recipe.train
    assert isinstance(train, TableTrainConfig)
    assert isinstance(recipe.model, SampledModelConfig)
    pairings = recipe.model.pairings()
    numbers = sum(pairing.width * (1 if pairing.shared else 2) for pairing in pairings) * counts.num_nodes
    return f"{numbers:,} numbers", tables_bytes(train, pairings, counts.num_nodes)


def check_grid(train: BlockTrainConfig, manifest: PartitionManifest, *, shared: bool) -> None:
    """Raise RecipeError: too many or too few blocks; `shared`: see `BlockGrid`."""
    # Here and not above: `plan` asks a family for sizes, and needs no numpy.
    from tasks.train.strategies.base import Ranks

    ranks = Ranks(0, train.num_ranks, 0, train.num_ranks)
    strategy: BlockGrid = STRATEGIES.create(train.strategy, ranks)
    strategy.check(manifest, shared=shared)
