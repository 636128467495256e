"""The family of models that are a vector for each node and relation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.errors import RecipeError
from configs.families.row_training import MultiplexTrainConfig
from configs.schema import Recipe
from models.facts import GraphFacts
from models.vectors.configs import GatneConfig
from tasks.sizes import PROCESS_BYTES, Counts
from tasks.stage import StageContext
from tasks.storage.graph_facts import relations_of
from tasks.storage.home import Home
from tasks.storage.manifests import PartitionManifest
from tasks.train.job import Job

if TYPE_CHECKING:
    from tasks.train.strategies.base import Ranks

_BYTES_AN_EDGE = 16
_BYTES_A_PAIR = 128
"""Its nodes, negatives, and their places among the batch's rows."""


def announce(context: StageContext, recipe: Recipe, manifest: PartitionManifest) -> None:
    """Refuse what cannot work before any process starts, and say what will run. Raises RecipeError."""
    model = recipe.model
    assert isinstance(model, GatneConfig)
    model.check_task(manifest.task)
    if not manifest.num_relations:
        raise RecipeError(
            f"model.name={model.name} predicts links by relation, and pairs of {manifest.dataset} name none: give "
            "dataset.edges.relation_column (and dataset.split.relation_column, where files are split), or take skipgram"
        )
    names = relations_of(manifest)[: manifest.num_relations]
    context.message(f"{model.name}, walks within each of {len(names)} relations: {', '.join(names[:10])}")


def train(job: Job[MultiplexTrainConfig], ranks: Ranks) -> None:
    """Train to the end, from the last checkpoint if there is one. Raises RecipeError and DataError."""
    from tasks.train import run
    from tasks.train.multiplex.engine import RelationEngine

    run.train(lambda: RelationEngine(job, ranks), ranks)


def size(home: Home, recipe: Recipe, facts: GraphFacts, counts: Counts, num_parts: int) -> tuple[str, int] | None:
    """Return the rows' numbers, in words, and a training's peak memory in bytes."""
    model, train = recipe.model, recipe.train
    assert isinstance(model, GatneConfig)
    assert isinstance(train, MultiplexTrainConfig)
    relations = max(1, facts.num_relations)
    lent = model.edge_dim * relations
    numbers = (2 * model.dim + lent) * counts.num_nodes
    # Two moments of each row but the contexts'; the vectors, twice while the best ones are written; a batch.
    needed = 4 * (numbers + 2 * (model.dim + lent) * counts.num_nodes + 2 * relations * model.dim * counts.num_nodes)
    a_batch = train.batch_size * (_BYTES_A_PAIR + 8 * model.dim) + _BYTES_AN_EDGE * counts.num_edges
    return f"{numbers:,} numbers", 2 * PROCESS_BYTES + needed + a_batch
