"""Computing a model's vectors from a graph."""

from __future__ import annotations

import time
from typing import Any, cast

from configs.errors import RecipeError
from configs.families.row_training import FactorTrainConfig
from configs.registry import MODELS
from models.vectors.base import FactoredModel
from tasks.processes.device import use_threads
from tasks.sampling.degrees import warn_of_isolated
from tasks.sampling.factor_graph import factor_graph
from tasks.storage.graph_store import GraphStore
from tasks.train.job import LAST, Job
from tasks.train.node_vectors.vectors import finish_vectors
from tasks.train.state import checkpoint
from tasks.train.state.journal import Journal, Progress


def compute(job: Job[FactorTrainConfig]) -> None:
    """Compute the vectors, fit a head to them, and write both. Raises RecipeError."""
    use_threads(job.train.threads)
    store = GraphStore.open(job.graph)
    progress, options = Progress(), cast(Any, job.model)
    journal = Journal(job.work, progress, 1, 1, 1, writes=True, unit="nodes")
    model: type[FactoredModel] = MODELS.get(job.model.name)
    if options.dim > store.manifest.num_nodes:
        raise RecipeError(
            f"model.dim={options.dim} is more than the {store.manifest.num_nodes:,} nodes of {store.manifest.dataset}; "
            "lower it"
        )
    warn_of_isolated(store, "their vectors say nothing")
    began = time.perf_counter()

    def say(what: str) -> None:
        journal.write_progress(what, force=True)

    graph = factor_graph(store, symmetric=store.manifest.symmetric, seed=job.seed, weighted=options.weighted)
    vectors = model.compute(options, graph, job.seed, say)
    progress.step = 1
    progress.run_totals = [
        float(store.manifest.num_nodes),
        float(store.manifest.num_edges),
        time.perf_counter() - began,
    ]
    journal.note_checkpoint()
    checkpoint.save_atomic({"config_digest": job.digest, "vectors": vectors}, job.work / LAST)
    finish_vectors(job, store, vectors, journal, vectors.numel())
