"""Every rank trains on its own part of the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from configs.registry import STRATEGIES
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import PartitionManifest
from tasks.train.strategies.base import PartStrategy

if TYPE_CHECKING:
    from torch import Tensor

    from models.block import StepBatch


@STRATEGIES.register("partition_parallel")
class PartitionParallel(PartStrategy):
    """A rank holds its parts and a halo around them.

    Memory for features and edges falls with the ranks. Messages stop at the halo's rim, so with more layers than halo
    hops vectors near the rim differ from the whole graph's; validation uses the whole graph. Gradients are averaged
    (DistributedDataParallel).
    """

    loaders = ("neighbor", "full", "edge", "full_edge")
    _nodes: Tensor | None = None
    """Set by `open`: this rank's nodes by their ids in the whole graph."""

    def open(self, store: GraphStore) -> GraphStore:
        """Cut this rank's parts and their halo out of the graph, into memory."""
        import torch

        from tasks.train.strategies._local_graph import LocalGraph

        manifest = store.manifest
        assert isinstance(manifest, PartitionManifest)
        bounds = manifest.rank_bounds(self.ranks.world_size)
        # The rank that has most seeds. Edges count where they lead to (as in `LocalGraph`, at most).
        seeds = store["train_idx"] if manifest.split_rows.are_nodes else store["train_edges"][:, 1]
        places = np.searchsorted(bounds, seeds, side="right") - 1
        self.largest = int(np.bincount(places, minlength=len(bounds) - 1).max())
        local = LocalGraph(store, bounds[self.ranks.rank], bounds[self.ranks.rank + 1], self.config.halo_hops)
        self._nodes = torch.from_numpy(local.nodes)
        return local

    def finish(self, batch: StepBatch) -> StepBatch:
        """Turn local ids of input nodes into those of the whole graph: embeddings are shared."""
        from models.block import Batch

        assert self._nodes is not None
        assert isinstance(batch, Batch)
        local = batch.inputs.node_ids
        return replace(batch, inputs=replace(batch.inputs, node_ids=self._nodes.to(local.device)[local]))
