"""The family of models whose rows are learnt from samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from configs.errors import RecipeError
from configs.families.row_training import TableTrainConfig
from configs.registry import MODELS
from configs.schema import Recipe
from models.facts import GraphFacts
from models.kernels.tables.row_layout import UpdateRule
from models.vectors.configs import SampledModelConfig, VectorModelConfig
from tasks.processes.memory import available_bytes
from tasks.sizes import PROCESS_BYTES, Counts
from tasks.stage import StageContext
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import AnyJob, Job
from tasks.train.tables.checks import check_grid
from tasks.train.tables.settings import TableSizes, table_memory

if TYPE_CHECKING:
    from tasks.train.strategies.base import Ranks
    from tasks.train.tables.trainer import Trainer


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


def trainings(job: Job[TableTrainConfig]) -> list[AnyJob]:
    """Return the one training that makes up a job."""
    return [job]


def train(job: Job[TableTrainConfig], ranks: Ranks) -> None:
    """Train to the end, from the last checkpoint if there is one. Raises RecipeError."""
    from tasks.train.tables.trainer import Trainer

    train_blocks(Trainer, job, ranks)


def train_blocks(trainer_class: type[Trainer], job: Job[Any], ranks: Ranks) -> None:
    """Train one rank's blocks to the end, and let rank 0 write the outcome. Raises RecipeError."""
    import torch

    from tasks.train.ranks.collectives import joined
    from tasks.train.tables import place

    chosen = place.choose_place(job.train, ranks.local_rank, place.why_no_gpu(MODELS.get(job.model.name)))
    # Whatever the place: blocks and samples travel between ranks through the CPUs' memory.
    with joined(ranks, torch.device("cpu")):
        trainer = trainer_class(job, ranks, chosen)
        trainer.run()
    if ranks.is_main:
        trainer.finish()


def size(home: Home, recipe: Recipe, facts: GraphFacts, counts: Counts, num_parts: int) -> tuple[str, int] | None:
    """Return the tables' numbers, in words, and a training's peak memory on this machine's CPU in bytes."""
    train = recipe.train
    assert isinstance(train, TableTrainConfig)
    assert isinstance(recipe.model, SampledModelConfig)
    pairings, rule = recipe.model.pairings(), UpdateRule(train.optimizer)
    numbers = sum(pairing.width * (1 if pairing.shared else 2) for pairing in pairings) * counts.num_nodes
    tables = TableSizes.of(pairings, counts.num_nodes, train.precision, rule).all_tables
    memory = train.num_ranks * table_memory(train, available_bytes())
    in_memory = tables + 4 * sum(pairing.width for pairing in pairings) * counts.num_nodes
    return f"{numbers:,} numbers", 2 * PROCESS_BYTES * train.num_ranks + (in_memory if tables <= memory else memory)
