"""The default: nothing for one part, METIS while the graph is small, coarsening before METIS beyond that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from configs.registry import PARTITIONERS
from tasks.partition.base import Csr, PartitionContext, Partitioner
from tasks.partition.configs import METIS_MAX_EDGES, AutoPartitionerConfig, PartitionerConfig
from tasks.processes.memory import limit_bytes

# Of what a process may have at most, for the partitioner; the rest is the interpreter's and the system's.
_SHARE = 0.8


@PARTITIONERS.register("auto")
class AutoPartitioner(Partitioner):
    """Takes METIS for small graphs and `coarsened` for large ones; leaves the graph whole for one part."""

    Config = AutoPartitionerConfig

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        """Return the part of each node, (num_nodes,)."""
        context = context or PartitionContext()
        name, why, fits = choose(csr.num_nodes, csr.num_edges)
        (context.message if fits else context.warn)(f"takes {name}: {why}")
        chosen: Partitioner = PARTITIONERS.create(PARTITIONERS.config({**self.config.model_dump(), "name": name}))
        return chosen.partition(csr, num_parts, context)


def choose(num_nodes: int, num_edges: int) -> tuple[str, str, bool]:
    """Return the partitioner for a graph of `num_edges` adjacency entries, why, and whether another one was too large.

    The choice depends on the graph alone, never on what memory happens to be free: the same recipe on the same data
    gives the same parts everywhere. Only a machine that could never hold what the partitioner needs takes the one that
    needs least.
    """
    most = f"{METIS_MAX_EDGES:,}"
    name, why = ("metis", f"at most {most}") if num_edges <= METIS_MAX_EDGES else ("coarsened", f"more than {most}")
    needed, limit = _needed(name, num_nodes, num_edges), limit_bytes()
    if needed <= _SHARE * limit:
        return name, f"{num_edges:,} edge ends are {why}; about {needed / 1e9:.2g} GB of memory", True
    return (
        "fennel",
        f"{name} needs about {needed / 1e9:.2g} GB of memory for {num_nodes:,} nodes, and this machine has "
        f"{limit / 1e9:.2g} GB; fennel needs {_needed('fennel', num_nodes, num_edges) / 1e9:.2g} GB and cuts more, and "
        "on a larger machine the parts would be others (partition.name=fennel takes it everywhere)",
        False,
    )


def _needed(name: str, num_nodes: int, num_edges: int) -> int:
    config = PARTITIONERS.config({"name": name})
    assert isinstance(config, PartitionerConfig)
    needed = config.memory_bytes(num_nodes, num_edges)
    assert needed is not None
    return needed
