"""Learnable embeddings of nodes as a parameter of the model."""

from __future__ import annotations

from configs.registry import EMBEDDINGS, MODELS
from models.base import GraphModel
from models.facts import GraphFacts
from tasks.train.embeddings.configs import DenseConfig
from tasks.train.job import GnnJob
from tasks.train.strategies.base import Ranks


@EMBEDDINGS.register("dense")
class DenseEmbeddings:
    """The model as it is."""

    def __init__(self, config: DenseConfig) -> None:
        self.config = config

    def build(self, job: GnnJob, facts: GraphFacts, ranks: Ranks) -> GraphModel:
        """Build the recipe's model on the CPU."""
        model: GraphModel = MODELS.create(job.model, facts)
        return model
