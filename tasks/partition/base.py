"""What all partitioners share: options, the graph they are given, and what they may ask of it."""

from __future__ import annotations

import abc
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from tasks.partition.configs import PartitionerConfig
from tasks.storage.graph_store import Array


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

    def __init__(self, config: PartitionerConfig) -> None:
        """`config` is the component's own `Config`."""
        self.config = config

    @abc.abstractmethod
    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        """Return the part of each node.

        Args:
            csr: the graph, undirected and simple.
            num_parts: 2 or more, at most the number of nodes.
            context: training nodes to balance, scratch folder, where to say things.

        Returns:
            int32 (num_nodes,), values in 0..num_parts - 1. The same input and seed give the same parts.
        """


def check_parts(num_nodes: int, num_parts: int) -> None:
    """Raise DataError unless every part can have a node."""
    if num_parts > num_nodes:
        raise DataError(
            f"the graph has {num_nodes:,} nodes, which cannot be split into {num_parts:,} parts; "
            f"set partition.num_parts to at most {max(1, num_nodes):,}"
        )


def node_weights(num_nodes: int, train_idx: Array | None) -> NDArray[np.int64]:
    """Return what is balanced: (N, 1) ones, or (N, 2) with a second column that is 1 on training nodes."""
    weights = np.ones((num_nodes, 1 if train_idx is None else 2), np.int64)
    if train_idx is not None:
        weights[:, 1] = 0
        weights[train_idx, 1] = 1
    return weights


def deal(order: Array, num_parts: int, part: NDArray[np.int32], first: int = 0) -> None:
    """Give the nodes of `order` to the parts in turn, starting with part `first`: sizes differ by one at most."""
    part[order] = (np.arange(first, first + len(order), dtype=np.int64) % num_parts).astype(np.int32)
