"""Computing a model's vectors from a graph."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch

from configs.errors import RecipeError
from configs.registry import MODELS
from configs.training import FactorTrainConfig
from models.kernels.adjacency import Adjacency
from models.vectors import FactoredModel, FactorGraph
from tasks.arrays import Array
from tasks.processes.device import use_threads
from tasks.sampling.lookup import frozen
from tasks.sampling.neighbors import derive_key
from tasks.sampling.walk_pairs import expected_pairs, walk_pairs
from tasks.sampling.walks import Walks, out_weights
from tasks.storage.graph_store import GraphStore
from tasks.train import checkpoint
from tasks.train.job import LAST, Job
from tasks.train.journal import Journal, Progress
from tasks.train.strategies.base import Ranks
from tasks.train.vectors import finish_vectors

_PAIRS = 1
_PAIRS_AT_A_TIME = 1 << 24


def compute(job: Job[FactorTrainConfig], ranks: Ranks) -> None:
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
    began = time.perf_counter()

    def say(what: str) -> None:
        journal.write_progress(what, force=True)

    vectors = model.factor(options, factor_graph(store, job.seed, weighted=options.weighted), job.seed, say)
    progress.step = 1
    progress.run_totals = [
        float(store.manifest.num_nodes),
        float(store.manifest.num_edges),
        time.perf_counter() - began,
    ]
    journal.note_checkpoint()
    checkpoint.save_atomic({"config_digest": job.digest, "vectors": vectors}, job.work / LAST)
    finish_vectors(job, ranks, store, vectors, journal, vectors.numel())


def factor_graph(store: GraphStore, seed: int, *, weighted: bool) -> FactorGraph:
    """Return what factorisations read of a graph."""
    indptr, indices = frozen(store["csr_indptr"]), frozen(store["csr_indices"])
    weight = out_weights(store) if weighted else None
    rows = Adjacency(_tensor(indptr), _tensor(indices), store.manifest.num_nodes, symmetric=store.manifest.symmetric)

    def pairs(length: int, window: int, count: float) -> Iterator[tuple[Array, Array]]:
        key = derive_key(seed, _PAIRS)
        walks = Walks(indptr, indices, key=key, length=length, by_degree=True, weight=weight)
        each = expected_pairs(length, window, forward=False, shrink=False)
        total, at_a_time = int(np.ceil(count / each)), max(1, int(_PAIRS_AT_A_TIME / each))
        for first in range(0, total, at_a_time):
            tokens = np.empty((min(at_a_time, total - first), length), indices.dtype)
            walks.fill(first, tokens)
            yield walk_pairs(tokens, window, forward=False, shrink=False, key=key + 2, first=first)

    return FactorGraph(rows, None if weight is None else _tensor(np.asarray(weight)), pairs)


def _tensor(array: Array) -> torch.Tensor:
    """Return a tensor over memory that is only read."""
    import warnings

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)
