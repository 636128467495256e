"""What all partitioners share: the graph they are given, and what they may ask of it."""

from __future__ import annotations

import abc
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array
from tasks.partition.configs import PartitionerConfig


@dataclass(frozen=True)
class Csr:
    """An undirected graph: every edge stands in both rows, each neighbour once, no self-loops.

    indptr: int64 (N + 1,). indices: int32 or int64 (E,), ascending within a row. Either may be a read-only memory map.
    """

    indptr: Array
    indices: Array

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.indptr) - 1

    @property
    def num_edges(self) -> int:
        """E: entries, two for each undirected edge."""
        return len(self.indices)


class WeightedCsr(NamedTuple):
    """An undirected graph as kernels take it: each edge stands twice."""

    indptr: Array
    """int64 (n + 1,)."""
    indices: Array
    """ids (m,)."""
    edge_weight: Array
    """int (m,), or empty: every edge counts 1."""


class Clusters(NamedTuple):
    """C clusters of nodes, and where their nodes and entries are when they stand cluster by cluster."""

    label: Array
    """ids (n,): the cluster of each node, 0..C - 1."""
    members: Array
    """ids (n,): the nodes, cluster by cluster."""
    first_member: Array
    """int64 (C + 1,): cluster c has members[first_member[c]] to members[first_member[c + 1]]."""
    first_entry: Array
    """int64 (C + 1,): the same in entries of their rows."""


class Parts(NamedTuple):
    """A partition of nodes into k parts, or clusters, and how heavy each may be."""

    part: Array
    """(n,): the part of each node."""
    weight: Array
    """int32 (n,)."""
    train: Array
    """int32 (n,): a node's training nodes; or empty: they are not balanced."""
    size: Array
    """int (k,): weight of each part."""
    train_size: Array
    """int (k,): training nodes of each part."""
    cap: int
    """Largest weight of a part."""
    train_cap: int


@dataclass(frozen=True)
class PartitionContext:
    """What a partitioner may use beside the graph."""

    train_idx: Array | None = None
    """Training nodes, where they are to be balanced too."""
    scratch: Path = field(default_factory=lambda: Path(tempfile.gettempdir()))
    """Folder for temporary files as large as the graph."""
    message: Callable[[str], None] = lambda text: None
    """Says something worth a line."""
    warn: Callable[[str], None] = lambda text: None
    """Says something that the user should know."""


class Partitioner(abc.ABC):
    """Splits the nodes of a graph into parts of nearly equal size with few edges between them."""

    config: PartitionerConfig
    ignores_edges: ClassVar[bool] = False
    """Whether parts follow from the nodes alone."""

    def __init__(self, config: PartitionerConfig) -> None:
        self.config = config

    @abc.abstractmethod
    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        """Return the part of each node, int32 (num_nodes,), in 0..num_parts - 1.

        `num_parts`: 2 or more, at most the number of nodes. The same input and seed give the same parts.
        """


def deal(order: Array, num_parts: int) -> NDArray[np.int32]:
    """Give the nodes of `order`, which has each once, to the parts in turn; return each node's, int32 (num_nodes,)."""
    part = np.empty(len(order), np.int32)
    part[order] = np.arange(len(order)) % num_parts
    return part


def even_blocks(num_nodes: int, num_parts: int, train_idx: Array | None) -> NDArray[np.int32]:
    """Return contiguous parts of equal size; where training nodes are balanced, those are dealt out first."""
    nodes = np.arange(num_nodes)
    if train_idx is None:
        return (nodes * num_parts // num_nodes).astype(np.int32)
    return deal(np.concatenate([train_idx, np.setdiff1d(nodes, train_idx)]), num_parts)
