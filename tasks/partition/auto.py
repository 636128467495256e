"""The default: nothing for one part, METIS while the graph is small, coarsening before METIS beyond that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from configs.registry import PARTITIONERS
from tasks.partition.base import Csr, PartitionContext, Partitioner
from tasks.partition.configs import AutoPartitionerConfig

# Entries of the adjacency (both directions) up to which METIS is taken: there it needs at most 3 s and 0.4 GB, and is
# the reference. Above, `coarsened` was 3.6 times as fast on 9 million entries and 4.6 times on 54 million, in 1/24 and
# 1/38 of the memory, with cuts of +0.6 % and -1.5 % (benchmarks/partition.py, EPYC, November 2026).
METIS_MAX_EDGES = 4_000_000


@PARTITIONERS.register("auto")
class AutoPartitioner(Partitioner):
    """Takes METIS for small graphs and `coarsened` for large ones; leaves the graph whole for one part."""

    Config = AutoPartitionerConfig

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        """Return the part of each node, (num_nodes,)."""
        context = context or PartitionContext()
        name, why = choose(csr.num_edges)
        context.message(f"takes {name}: {why}")
        chosen: Partitioner = PARTITIONERS.create(PARTITIONERS.config({**self.config.model_dump(), "name": name}))
        return chosen.partition(csr, num_parts, context)


def choose(num_edges: int) -> tuple[str, str]:
    """Return the partitioner for a graph of `num_edges` adjacency entries, and why.

    The choice depends on the graph alone, never on what memory happens to be free: the same recipe on the same data
    gives the same parts everywhere.
    """
    if num_edges <= METIS_MAX_EDGES:
        return "metis", f"{num_edges:,} edge ends are at most {METIS_MAX_EDGES:,}"
    return "coarsened", f"{num_edges:,} edge ends are more than {METIS_MAX_EDGES:,}"
