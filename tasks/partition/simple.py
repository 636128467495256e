"""Partitioners that do not look at edges: none and random."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from configs.registry import PARTITIONERS
from tasks.partition.base import Csr, PartitionContext, Partitioner, deal
from tasks.partition.configs import NonePartitionerConfig, RandomPartitionerConfig


@PARTITIONERS.register("none")
class NonePartitioner(Partitioner):
    """Leaves the graph whole."""

    Config = NonePartitionerConfig

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        """Return zeros, (num_nodes,)."""
        assert num_parts == 1
        return np.zeros(csr.num_nodes, np.int32)


@PARTITIONERS.register("random")
class RandomPartitioner(Partitioner):
    """Deals shuffled nodes out: perfectly even parts, cuts (k - 1) / k of all edges."""

    Config = RandomPartitionerConfig
    ignores_edges = True

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        """Return the part of each node, (num_nodes,)."""
        rng = np.random.default_rng(self.config.seed)
        train_idx = context.train_idx if context is not None else None
        if train_idx is None:
            return deal(rng.permutation(csr.num_nodes), num_parts)
        others = np.setdiff1d(np.arange(csr.num_nodes), train_idx)
        return deal(np.concatenate([rng.permutation(np.sort(train_idx)), rng.permutation(others)]), num_parts)
