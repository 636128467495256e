"""The whole graph in every step: for graphs that fit into memory with all their layers."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from configs.registry import LOADERS
from models.block import Batch, Block
from tasks.sampling.neighborhoods.lookup import without_pairs
from tasks.sampling.rows.features import count_types, whole_graph
from tasks.sampling.rows.labels import hide_labels, targets
from tasks.train.loaders.base import Array, LabelLoader, Loader, TrainingData
from tasks.train.loaders.configs import FullConfig, FullEdgeConfig
from tasks.train.loaders.links.edge import PairSource


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

    The positive edges of a batch stay in the graph that messages pass along, as they do there, unless
    `leave_out_positives` asks for the edge loader's way: then a step has a graph of its own, made in one pass over the
    edges.
    """

    def __init__(self, config: FullEdgeConfig, data: TrainingData) -> None:
        self.pairs = PairSource(data.store, config)
        self.num_seeds, self.batch_size = self.pairs.num_seeds, config.batch_size
        self.leave_out = config.leave_out_positives
        self.block, self.inputs = whole_graph(data.store, data.features)

    def to(self, device: torch.device) -> None:
        """Keep inputs, and the graph where it is the same in every step, on the device."""
        self.inputs = self.inputs.to(device)
        if not self.leave_out:
            self.block = self.block.to(device)

    def batch(self, positions: Array, key: int) -> Batch:
        """Return the whole graph with the edges at `positions` and drawn negatives."""
        pairs, target = self.pairs.draw(positions, key)
        block = self._without(pairs[:, : len(positions)]) if self.leave_out else self.block
        return Batch(
            blocks=[block],
            inputs=self.inputs,
            target=target,
            num_seeds=len(positions),
            pairs=torch.from_numpy(pairs),
            num_edges=block.num_edges,
        )

    def _without(self, pairs: Array) -> Block:
        """Return the graph without the edges between pairs, int64 (2, n), both ways."""
        whole = self.block
        indptr, indices, left_out = without_pairs(whole.indptr.numpy(), whole.indices.numpy(), pairs)
        stays = torch.ones(whole.num_edges, dtype=torch.bool)
        stays[torch.from_numpy(left_out)] = False

        def rest(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[stays]

        degree = None  # in a rank's part of a graph some in-edges are elsewhere: they still count
        if whole.degree is not None:
            degree = whole.degree - whole.counts + torch.from_numpy(np.diff(indptr))
        edge_type = rest(whole.edge_type)
        return Block(
            torch.from_numpy(indptr),
            torch.from_numpy(indices),
            whole.num_src,
            degree=degree,
            weight=rest(whole.weight),
            edge_feat=rest(whole.edge_feat),
            edge_feat_cat=rest(whole.edge_feat_cat),
            edge_type=edge_type,
            edge_type_counts=count_types(edge_type),
            symmetric=whole.symmetric,
        )
