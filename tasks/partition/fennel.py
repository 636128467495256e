"""Fennel: one node after the other goes where most of its neighbours are, against a growing price of size."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from configs.registry import PARTITIONERS
from tasks.partition.base import Csr, PartitionContext, Partitioner, Parts
from tasks.partition.configs import FennelPartitionerConfig


@PARTITIONERS.register("fennel")
class FennelPartitioner(Partitioner):
    """Streams the nodes a few times: 4 bytes of memory a node, for graphs that nothing else can hold; cuts more.

    A node v goes to the part that maximises |N(v) ∩ P| - alpha * gamma * |P|^(gamma - 1), with gamma = 3/2 and
    alpha = m * k^(gamma - 1) / n^gamma, among those that have room. Later passes move nodes by the same rule
    (restreaming).

    Sources: Tsourakakis et al., FENNEL, WSDM 2014, sections 4 and 5; Nishimura, Ugander, Restreaming Graph
    Partitioning, KDD 2013.
    """

    Config = FennelPartitionerConfig

    config: FennelPartitionerConfig

    def partition(self, csr: Csr, num_parts: int, context: PartitionContext | None = None) -> NDArray[np.int32]:
        """Return the part of each node, (num_nodes,)."""
        from tasks.partition.kernels.streaming import fennel_pass

        num_nodes = csr.num_nodes
        slack = 1.0 + self.config.imbalance
        train_idx = context.train_idx if context is not None else None
        is_train = np.zeros(0 if train_idx is None else num_nodes, np.bool_)
        if train_idx is not None:
            is_train[train_idx] = True
        part = np.full(num_nodes, -1, np.int32)
        size, train_size = np.zeros((2, num_parts), np.int64)
        cap, train_cap = (int(np.ceil(slack * count / num_parts)) for count in (num_nodes, is_train.sum()))
        parts = Parts(part, np.zeros(0, np.int32), is_train, size, train_size, cap, train_cap)
        alpha = (csr.num_edges / 2) * num_parts**0.5 / max(1, num_nodes) ** 1.5
        # Sequential ids of a crawl or a time-ordered table hold locality; the stream therefore runs in their order.
        first = self.config.seed % max(1, num_nodes)
        for _ in range(self.config.passes):
            moved = fennel_pass(csr.indptr, csr.indices, parts, alpha, first)
            if moved * 1000 < num_nodes:
                break
        return part
