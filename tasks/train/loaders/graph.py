"""Batches of whole graphs."""

from __future__ import annotations

from configs.registry import LOADERS
from models.block import Batch
from tasks.sampling.graphs import GraphBatches
from tasks.train.loaders.base import Array, LabelLoader, TrainingData
from tasks.train.loaders.configs import GraphConfig


@LOADERS.register("graph")
class GraphLoader(LabelLoader):
    """Seeds are the graphs of the training split."""

    def __init__(self, config: GraphConfig, data: TrainingData) -> None:
        store = data.store
        super().__init__(store.manifest, store["train_idx"], store["graph_label"])
        self.batch_size = config.batch_size
        self._graphs = GraphBatches(store, data.features, self.seeds)

    def batch(self, positions: Array, key: int) -> Batch:
        """Assemble the graphs at `positions`; nothing is drawn."""
        return self._graphs.batch(positions)
