"""The family of models whose rows are learnt from samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.errors import RecipeError
from configs.registry import STRATEGIES
from configs.schema import Recipe
from configs.training import TableTrainConfig
from models.facts import GraphFacts
from models.kernels.row_layout import Rule, row_bytes
from models.vector_configs import SampledConfig, VectorsConfig
from tasks.sizes import PROCESS_BYTES, Counts
from tasks.stage import StageContext
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import AnyJob, Job

if TYPE_CHECKING:
    from tasks.train.strategies.base import Ranks
    from tasks.train.strategies.block_grid import BlockGrid


def announce(context: StageContext, recipe: Recipe, manifest: PartitionManifest) -> None:
    """Refuse what cannot work before any process starts, and say what will run. Raises RecipeError."""
    # Here and not above: `plan` asks a family for sizes, and needs no numpy.
    from tasks.train.strategies.base import Ranks

    train = recipe.train
    assert isinstance(train, TableTrainConfig)
    assert isinstance(recipe.model, VectorsConfig)
    recipe.model.check_task(manifest.task)
    if not manifest.num_edges:
        raise RecipeError(f"{manifest.dataset} has no edges to draw samples from; look at preprocess and components")
    ranks = Ranks(0, train.num_ranks * train.num_machines, 0, train.num_ranks)
    strategy: BlockGrid = STRATEGIES.create(train.strategy, ranks)
    strategy.check(manifest)
    context.message(f"{recipe.model.name}, {train.loader.name} loader, {train.strategy.name}")


def trainings(job: Job[TableTrainConfig]) -> list[AnyJob]:
    """Return the one training that makes up a job."""
    return [job]


def train(job: Job[TableTrainConfig], ranks: Ranks) -> None:
    """Train to the end, from the last checkpoint if there is one. Raises RecipeError."""
    from tasks.train.tables.trainer import Trainer

    Trainer(job, ranks).run()


def size(home: Home, recipe: Recipe, facts: GraphFacts, counts: Counts, num_parts: int) -> tuple[str, int] | None:
    """Return the tables' numbers, in words, and a training's peak memory on this machine's CPU in bytes."""
    train = recipe.train
    assert isinstance(train, TableTrainConfig)
    assert isinstance(recipe.model, SampledConfig)
    tables = [(pairing.width, 1 if pairing.shared else 2) for pairing in recipe.model.pairings()]
    numbers = sum(width * count for width, count in tables) * counts.num_nodes
    rows = sum(row_bytes(width, train.precision, Rule(train.optimizer)) * count for width, count in tables)
    vectors = 4 * sum(width for width, _ in tables)
    return f"{numbers:,} numbers", 2 * PROCESS_BYTES + counts.num_nodes * (rows + vectors)
