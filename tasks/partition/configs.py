"""Options of the partitioners, apart from their code: recipes are checked without what they compute with."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field, model_validator

from configs.base import ComponentConfig
from configs.registry import PARTITIONERS

MAX_PARTS = 1 << 15
# Entries of the adjacency (both directions) up to which auto takes METIS: there it needs at most 3 s and 0.4 GB, and is
# the reference. Above, `coarsened` was 3.6 times as fast on 9 million entries and 4.6 times on 54 million, in 1/24 and
# 1/38 of the memory, with cuts of +0.6 % and -1.5 % (benchmarks/partition.py, EPYC, November 2026).
METIS_MAX_EDGES = 4_000_000
# The most memory beyond the graph itself that was seen on graphs of 1 to 54 million entries (5.5 GB on the largest):
# METIS copies the graph at every level of its coarsening, in 64-bit integers with weights. An edge has two entries.
_METIS_EDGE_BYTES, _METIS_NODE_BYTES = 98, 120
# Measured with 8 and 40 million nodes (28 and 31 bytes); levels below `MAPPED_ENTRIES` lie in memory.
_COARSENED_NODE_BYTES, _COARSENED_BYTES = 34, 300_000_000


class PartitionerConfig(ComponentConfig):
    """Options of every partitioner."""

    num_parts: int = Field(default=1, ge=1, le=MAX_PARTS)
    """Parts to split the nodes into; 1 leaves the graph whole."""
    machines: int = Field(default=1, ge=1, le=MAX_PARTS)
    """Machines that share the parts: nodes are split among machines first, with as few edges between them as can be,
    and each machine's into num_parts / machines parts, which lie next to each other."""
    imbalance: float = Field(default=0.03, gt=0, le=1)
    """How far the largest part may exceed the mean part, in nodes (0.03: 3 %); what exceeds it is reported."""
    balance_train: bool = False
    """Balance the training nodes over the parts as well (a second constraint)."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the partitioner."""

    def memory_bytes(self, num_nodes: int, num_edges: int) -> int | None:
        """Estimate the memory that it takes beyond a graph of `num_edges` adjacency entries; None: unknown."""
        return None

    @model_validator(mode="after")
    def _machines_get_whole_parts(self) -> PartitionerConfig:
        if self.num_parts % self.machines:
            multiple = -(-self.num_parts // self.machines) * self.machines
            raise ValueError(
                f"machines={self.machines} get equally many parts, and num_parts={self.num_parts} is no multiple of "
                f"it; set num_parts to {multiple}"
            )
        return self


@PARTITIONERS.options("auto", "simple")
class AutoPartitionerConfig(PartitionerConfig):
    """Takes METIS for small graphs and `coarsened` for large ones; leaves the graph whole for one part."""

    name: str = "auto"

    def memory_bytes(self, num_nodes: int, num_edges: int) -> int | None:
        config = MetisPartitionerConfig() if num_edges <= METIS_MAX_EDGES else CoarsenedPartitionerConfig()
        return config.memory_bytes(num_nodes, num_edges)


@PARTITIONERS.options("coarsened", "coarsened")
class CoarsenedPartitionerConfig(PartitionerConfig):
    """Clusters the graph before METIS sees it: METIS' quality on large graphs in a fraction of its time and memory."""

    name: str = "coarsened"
    threads: int = Field(default=0, ge=0, le=4096)
    """Threads; 0: one a core. The parts are the same with any number."""

    runtime_fields: ClassVar[frozenset[str]] = frozenset({"threads"})

    def memory_bytes(self, num_nodes: int, num_edges: int) -> int | None:
        """Grow with the nodes: the graph is read where it lies, and large levels lie in files."""
        return _COARSENED_NODE_BYTES * num_nodes + min(_COARSENED_BYTES, 8 * num_edges)


@PARTITIONERS.options("metis", "metis")
class MetisPartitionerConfig(PartitionerConfig):
    """METIS k-way: the fewest cut edges on small and medium graphs, about 100 bytes of memory an edge."""

    name: str = "metis"

    def memory_bytes(self, num_nodes: int, num_edges: int) -> int | None:
        """The graph with weights, once for each level."""
        return _METIS_EDGE_BYTES * num_edges + _METIS_NODE_BYTES * num_nodes


@PARTITIONERS.options("random", "simple")
class RandomPartitionerConfig(PartitionerConfig):
    """Deals shuffled nodes out: perfectly even parts, cuts (k - 1) / k of all edges."""

    name: str = "random"

    def memory_bytes(self, num_nodes: int, num_edges: int) -> int | None:
        return 24 * num_nodes
