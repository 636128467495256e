"""The family of models of knowledge graphs: rows of entities and relations, learnt from triples."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.families.row_training import KnowledgeTrainConfig
from configs.schema import Recipe
from models.facts import GraphFacts
from models.knowledge.configs import KnowledgeConfig
from tasks.sizes import Counts
from tasks.stage import StageContext
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import Job
from tasks.train.tables.family import check_grid
from tasks.train.tables.settings import tables_bytes

if TYPE_CHECKING:
    from tasks.train.strategies.base import Ranks


def announce(context: StageContext, recipe: Recipe, manifest: PartitionManifest) -> None:
    """Refuse what cannot work before any process starts, and say what will run. Raises RecipeError."""
    train = recipe.train
    assert isinstance(train, KnowledgeTrainConfig)
    assert isinstance(recipe.model, KnowledgeConfig)
    recipe.model.check_task(manifest.task)
    check_grid(train, manifest, shared=True)
    given = {"entities": manifest.feature_dim, "relations": manifest.relation_feature_dim}
    features = " and ".join(f"{count:,} of {name}" for name, count in given.items() if count)
    if features:
        context.message(
            f"features: {features}" + ("" if recipe.model.features else ", not used (model.features=false)")
        )
    context.message(f"{recipe.model.name}, {train.loader.name} loader, {train.loss.name} loss, {train.strategy.name}")


def train(job: Job[KnowledgeTrainConfig], ranks: Ranks) -> None:
    """Train to the end, from the last checkpoint if there is one. Raises RecipeError."""
    from tasks.train.knowledge.engine import TripleEngine
    from tasks.train.tables.family import train_blocks

    train_blocks(TripleEngine, job, ranks)


def size(home: Home, recipe: Recipe, facts: GraphFacts, counts: Counts, num_parts: int) -> tuple[str, int] | None:
    """Return the rows' numbers, in words, and a training's peak memory on this machine's CPU in bytes."""
    train = recipe.train
    assert isinstance(train, KnowledgeTrainConfig)
    assert isinstance(recipe.model, KnowledgeConfig)
    relations = recipe.model.relation_rows(facts.num_relations) * recipe.model.relation_width
    numbers = recipe.model.dim * counts.num_nodes + relations
    needed = tables_bytes(train, recipe.model.pairings(), counts.num_nodes)
    return f"{numbers:,} numbers", needed + 12 * relations
