"""Every rank trains on its own part of the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from configs.base import ComponentConfig
from configs.registry import STRATEGIES
from configs.training import TrainConfig
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import PartitionManifest
from tasks.train.strategies.base import Ranks, Strategy, check_parts, cut_largest

if TYPE_CHECKING:
    from torch import Tensor

    from models.block import StepBatch

_LOADERS = ("neighbor", "full", "edge", "full_edge")


@STRATEGIES.register("partition_parallel")
class PartitionParallel(Strategy):
    """Ranks take equally many steps and seeds: a part with fewer training nodes than the largest starts its order over.

    Memory for features and edges falls with the ranks. Messages stop at the halo's rim, so with more layers than halo
    hops vectors near the rim differ from the whole graph's; validation uses the whole graph. Gradients are averaged
    (DistributedDataParallel).
    """

    def __init__(self, config: ComponentConfig, ranks: Ranks) -> None:
        super().__init__(config, ranks)
        self._largest = 0
        self._nodes: Tensor | None = None  # set by `open`: this rank's nodes by their ids in the whole graph

    def check_options(self, train: TrainConfig, loader: str | None, num_parts: int) -> None:
        """Refuse a partition that the ranks cannot share, and loaders that want the whole graph."""
        check_parts("partition_parallel", _LOADERS, loader, self.ranks.world_size, num_parts)

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
        self._largest = int(np.bincount(places, minlength=len(bounds) - 1).max())
        local = LocalGraph(store, bounds[self.ranks.rank], bounds[self.ranks.rank + 1], self.config.halo_hops)
        self._nodes = torch.from_numpy(local.nodes)
        return local

    def steps(self, count: int, batch_size: int) -> int:
        """As many as the rank with the most seeds needs."""
        return max(1, -(-self._largest // batch_size))

    def share(self, count: int, step: int, steps: int) -> NDArray[np.int64]:
        """Cut the largest rank's seeds into steps; a rank with fewer starts its order over."""
        return cut_largest(self._largest, count, step, steps)

    def finish(self, batch: StepBatch) -> StepBatch:
        """Turn local ids of input nodes into those of the whole graph: embeddings are shared."""
        from models.block import Batch

        assert self._nodes is not None
        assert isinstance(batch, Batch)
        local = batch.inputs.node_ids
        return replace(batch, inputs=replace(batch.inputs, node_ids=self._nodes.to(local.device)[local]))
