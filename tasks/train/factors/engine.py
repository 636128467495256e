"""Vectors that are computed from a graph at once: one step."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor

from configs.errors import RecipeError
from configs.families.row_training import FactorTrainConfig
from configs.registry import MODELS
from models.vectors.base import FactoredModel
from tasks.processes.device import use_threads
from tasks.sampling.degrees import warn_of_isolated
from tasks.sampling.factor_graph import factor_graph
from tasks.storage.graph_store import GraphStore
from tasks.train.job import Job
from tasks.train.node_vectors.heads import finish_vectors
from tasks.train.run import Engine
from tasks.train.strategies.base import Ranks


class FactorEngine(Engine):
    """A factorisation, in one process."""

    unit = "nodes"

    def __init__(self, job: Job[FactorTrainConfig], ranks: Ranks) -> None:
        """Open the graph. Raises RecipeError: it has fewer nodes than vectors are to have numbers."""
        super().__init__(job, ranks)
        use_threads(job.train.threads)
        self.store, self.options = GraphStore.open(job.graph), cast(Any, job.model)
        manifest = self.store.manifest
        if self.options.dim > manifest.num_nodes:
            raise RecipeError(
                f"model.dim={self.options.dim} is more than the {manifest.num_nodes:,} nodes of {manifest.dataset}; "
                "lower it"
            )
        warn_of_isolated(self.store, "their vectors say nothing")
        self.vectors: Tensor | None = self.last["vectors"] if self.last else None
        self.begin(1, 1)

    def step(self) -> None:
        """Compute the vectors."""
        model: type[FactoredModel] = MODELS.get(self.job.model.name)
        manifest = self.store.manifest
        graph = factor_graph(
            self.store, symmetric=manifest.symmetric, seed=self.job.seed, weighted=self.options.weighted
        )

        def say(what: str) -> None:
            self.journal.write_progress(what, force=True)

        self.vectors = model.compute(self.options, graph, self.job.seed, say)
        self.progress.count_step(0.0, manifest.num_nodes, manifest.num_edges)

    def state(self) -> dict[str, Any]:
        """Return the vectors."""
        return {"vectors": self.vectors}

    def finish(self) -> None:
        """Fit a head to the vectors, and write both. Raises RecipeError: they are not finite."""
        assert self.vectors is not None
        finish_vectors(self.job, self.store, self.vectors, self.journal)

    @property
    def num_parameters(self) -> int:
        """Those of the vectors."""
        assert self.vectors is not None
        return self.vectors.numel()
