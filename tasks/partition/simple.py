"""Partitioners without a method of their own: auto and random."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from configs.registry import PARTITIONERS
from tasks.partition.base import Csr, PartitionContext, Partitioner, deal
from tasks.partition.configs import METIS_MAX_EDGES


@PARTITIONERS.register("auto")
class AutoPartitioner(Partitioner):
    """Takes METIS for small graphs and `coarsened` for large ones; leaves the graph whole for one part."""

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        context = context or PartitionContext()
        config = self.config.model_copy(update={"name": chosen_name(csr.num_edges)})
        needed_bytes = config.memory_bytes(csr.num_nodes, csr.num_edges)
        assert needed_bytes is not None
        limit = f"{'more than' if csr.num_edges > METIS_MAX_EDGES else 'at most'} {METIS_MAX_EDGES:,}"
        context.message(
            f"takes {config.name}: {csr.num_edges:,} edge ends are {limit}; about {needed_bytes / 1e9:.2g} GB of memory"
        )
        partitioner: Partitioner = PARTITIONERS.create(PARTITIONERS.config(config.model_dump()))
        return partitioner.partition(csr, num_parts, context)


def chosen_name(num_edges: int) -> str:
    """Return the partitioner for a graph of `num_edges` adjacency entries.

    It depends on the graph alone, never on what memory is free: the same recipe on the same data gives the same parts
    everywhere.
    """
    return "metis" if num_edges <= METIS_MAX_EDGES else "coarsened"


@PARTITIONERS.register("random")
class RandomPartitioner(Partitioner):
    """Deals shuffled nodes out: perfectly even parts, cuts (k - 1) / k of all edges."""

    ignores_edges = True

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        rng = np.random.default_rng(self.config.seed)
        train_idx = context.train_idx if context is not None else None
        if train_idx is None:
            return deal(rng.permutation(csr.num_nodes), num_parts)
        others = np.setdiff1d(np.arange(csr.num_nodes), train_idx)
        return deal(np.concatenate([rng.permutation(np.sort(train_idx)), rng.permutation(others)]), num_parts)
