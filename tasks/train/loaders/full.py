"""The whole graph in every step: for graphs that fit into memory with all their layers."""

from __future__ import annotations

import numpy as np
import torch

from models.block import Batch
from tasks.graph_store import GraphStore
from tasks.train.loaders.base import Array, FeatureSource, Loader, targets, whole_graph
from tasks.train.loaders.edge import PairSource


class FullNodeLoader(Loader):
    """Messages pass along all edges; the loss is taken on the seeds."""

    whole_split = True

    def __init__(self, store: GraphStore, features: FeatureSource) -> None:
        self.manifest = store.manifest
        self.nodes, self.labels = store["train_idx"], store["label"]
        self.num_seeds = len(self.nodes)
        self.block, self.inputs = whole_graph(store, features)

    def to(self, device: torch.device) -> None:
        """Keep graph and features on the device."""
        self.block, self.inputs = self.block.to(device), self.inputs.to(device)

    def batch(self, positions: Array, key: int) -> Batch:
        """Return the whole graph with the seeds at `positions`; nothing is drawn."""
        rows = np.asarray(self.nodes[positions], np.int64)
        return Batch(
            blocks=[self.block],
            inputs=self.inputs,
            target=targets(self.manifest, self.labels[rows]),
            num_seeds=len(positions),
            rows=torch.from_numpy(rows),
            num_edges=self.block.num_edges,
        )


class FullLinkLoader(Loader):
    """All nodes are encoded in every step; edges come in batches, with negatives (OGB's example for ogbl-ddi).

    The positive edges of a batch stay in the graph that messages pass along, as they do there: on a graph small enough
    for this, taking them out would mean another graph every step.
    """

    def __init__(self, store: GraphStore, features: FeatureSource, num_negatives: int) -> None:
        self.pairs = PairSource(store, num_negatives)
        self.num_seeds = self.pairs.num_seeds
        self.block, self.inputs = whole_graph(store, features)

    def to(self, device: torch.device) -> None:
        """Keep graph and features on the device."""
        self.block, self.inputs = self.block.to(device), self.inputs.to(device)

    def batch(self, positions: Array, key: int) -> Batch:
        """Return the whole graph with the edges at `positions` and drawn negatives."""
        pairs, target = self.pairs.draw(positions, key)
        return Batch(
            blocks=[self.block],
            inputs=self.inputs,
            target=target,
            num_seeds=len(positions),
            pairs=torch.from_numpy(pairs),
            num_edges=self.block.num_edges,
        )
