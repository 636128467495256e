"""The recipe's model, as training begins with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.registry import EMBEDDINGS
from models.base import GraphModel
from models.facts import GraphFacts
from tasks.train.gradients.sizes import refuse_excess
from tasks.train.job import GnnJob
from tasks.train.strategies.base import Ranks

if TYPE_CHECKING:
    from tasks.sampling.parts.ranges import Ranges


def build_model(job: GnnJob, facts: GraphFacts, ranks: Ranks, ranges: Ranges | None = None) -> GraphModel:
    """Build the recipe's model on the CPU, with its node embeddings where `train.embeddings` says; all ranks together.

    `ranges`: which rank holds which nodes of a graph in parts.

    Raises RecipeError: options that do not fit the graph, or a model that the machine's memory cannot hold.
    """
    refuse_excess(job.model, job.train, facts, ranks)
    model: GraphModel = EMBEDDINGS.create(job.train.embeddings).build(job, facts, ranks, ranges)
    return model
