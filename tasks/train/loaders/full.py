"""Loaders of whole graphs: one that fits into memory with all its layers, many small ones; and the choice by task."""

from __future__ import annotations

import numpy as np
import torch

from configs.registry import LOADERS
from models.block import Batch
from tasks.arrays import Array
from tasks.sampling.graphs import GraphBatches
from tasks.sampling.rows.features import whole_graph
from tasks.sampling.rows.labels import hide_labels, targets
from tasks.train.loaders.base import LabelLoader, Loader, TrainingData
from tasks.train.loaders.configs import AutoConfig, FullConfig, FullEdgeConfig, GraphConfig
from tasks.train.loaders.edge import PairSource


@LOADERS.register("full")
class FullLoader(LabelLoader):
    """Messages pass along all edges; the loss is taken on the seeds."""

    whole_split = True

    def __init__(self, config: FullConfig, data: TrainingData) -> None:
        store = data.store
        super().__init__(store.manifest, store["train_idx"], store["label"])
        self.block, self.inputs = whole_graph(store, data.features)

    def to(self, device: torch.device) -> None:
        """Keep graph and features on the device."""
        self.block, self.inputs = self.block.to(device), self.inputs.to(device)

    def batch(self, positions: Array, key: int) -> Batch:
        """Return the whole graph with the seeds at `positions`; drawn is only whose labels a model may read."""
        rows, inputs = hide_labels(self.inputs, np.asarray(self.seeds[positions], np.int64), key)
        return Batch(
            blocks=[self.block],
            inputs=inputs,
            target=targets(self.manifest, self.labels[rows]),
            num_seeds=len(rows),
            rows=torch.from_numpy(rows),
            num_edges=self.block.num_edges,
        )


@LOADERS.register("full_edge")
class FullEdgeLoader(Loader):
    """All nodes are encoded in every step; edges come in batches, with negatives (OGB's example for ogbl-ddi).

    The positive edges of a batch stay in the graph that messages pass along, as they do there.
    """

    def __init__(self, config: FullEdgeConfig, data: TrainingData) -> None:
        self.pairs = PairSource(data.store, config)
        self.num_seeds, self.batch_size = self.pairs.num_seeds, config.batch_size
        self.block, self.inputs = whole_graph(data.store, data.features)

    def to(self, device: torch.device) -> None:
        """Keep graph and features on the device."""
        self.block, self.inputs = self.block.to(device), self.inputs.to(device)

    def batch(self, positions: Array, key: int) -> Batch:
        """Return the whole graph with the edges at `positions` and drawn negatives."""
        [(pairs, target)] = self.pairs.draw_all([(positions, key)])
        return Batch(
            blocks=[self.block],
            inputs=self.inputs,
            target=target,
            num_seeds=len(positions),
            pairs=torch.from_numpy(pairs),
            num_edges=self.block.num_edges,
        )


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


@LOADERS.register("auto")
class AutoLoader:
    """Makes the loader that its options resolve to."""

    def __new__(cls, config: AutoConfig, data: TrainingData) -> Loader:  # type: ignore[misc]
        """Return another loader."""
        made: Loader = LOADERS.create(config.resolve(data.store.manifest), data)
        return made
