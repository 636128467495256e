"""Learnable embeddings of nodes as a parameter of the model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from configs.errors import RecipeError
from configs.registry import EMBEDDINGS, MODELS
from models.base import GraphModel
from models.facts import GraphFacts
from tasks.train.embeddings.configs import DenseConfig
from tasks.train.job import GnnJob
from tasks.train.strategies.base import Ranks

if TYPE_CHECKING:
    from tasks.sampling.parts.ranges import Ranges


@EMBEDDINGS.register("dense")
class DenseEmbeddings:
    """The model as it is."""

    def __init__(self, config: DenseConfig) -> None:
        self.config = config

    def build(self, job: GnnJob, facts: GraphFacts, ranks: Ranks, ranges: Ranges | None = None) -> GraphModel:
        """Build the recipe's model on the CPU.

        Raises RecipeError: the graph lies in parts (`ranges`), and each rank would hold a row for every node of it.
        """
        if ranges is not None and ranks.world_size > 1 and not (facts.feature_dim or facts.categories):
            raise RecipeError(
                "train.strategy=partitioned: the nodes have no features, and with train.embeddings=dense every rank "
                "would learn rows for all of them; take train.embeddings=sparse, whose rows lie with their nodes"
            )
        model: GraphModel = MODELS.create(job.model, facts)
        return model
