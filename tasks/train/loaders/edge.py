"""Mini-batches of edges with uniform negatives and sampled neighbourhoods."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from models.block import Batch
from tasks.graph_store import GraphStore
from tasks.train.loaders.base import Array, FeatureSource, Loader
from tasks.train.loaders.neighbor import make_blocks
from tasks.train.loaders.sampling import NeighborSampler, derive_key, draw_negatives

# A draw hits an edge with the density of the graph as probability: after so many tries it hardly matters which pair.
_TRIES = 16


class PairSource:
    """Training edges and, for each, uniform pairs that are no edges."""

    def __init__(self, store: GraphStore, num_negatives: int) -> None:
        self.edges = store["train_edges"]
        self.indptr, self.indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
        self.num_negatives = num_negatives
        self.num_seeds = len(self.edges)

    def draw(self, positions: Array, key: int) -> tuple[Array, Tensor]:
        """Return pairs, int64 (2, n * (1 + num_negatives)) with the positives first, and their target, 1 or 0."""
        positive = np.asarray(self.edges[positions], np.int64)
        negative = np.empty((len(positions) * self.num_negatives, 2), np.int64)
        draw_negatives(self.indptr, self.indices, derive_key(key, 1), _TRIES, negative)
        target = torch.zeros(len(positive) + len(negative))
        target[: len(positive)] = 1
        return np.ascontiguousarray(np.concatenate([positive, negative]).T), target


class EdgeLoader(Loader):
    """Seeds are training edges; their ends' neighbourhoods are sampled without the batch's own positive edges.

    Left in, an edge would tell the model its own answer.
    """

    def __init__(
        self, store: GraphStore, features: FeatureSource, fanouts: tuple[int, ...], num_negatives: int
    ) -> None:
        self.pairs = PairSource(store, num_negatives)
        self.num_seeds = self.pairs.num_seeds
        self.features = features
        self.sampler = NeighborSampler(store["csc_indptr"], store["csc_indices"], fanouts)

    def batch(self, positions: Array, key: int) -> Batch:
        """Draw negatives and sample around all ends."""
        pairs, target = self.pairs.draw(positions, key)
        local, seeds = self.sampler.number(pairs)
        nodes, layers = self.sampler.sample(seeds, key, excluded=local[:, : len(positions)])
        blocks = make_blocks(layers, self.features)
        return Batch(
            blocks=blocks,
            inputs=self.features.inputs(nodes),
            target=target,
            num_seeds=len(positions),
            pairs=torch.from_numpy(local),
            num_edges=sum(block.num_edges for block in blocks),
        )
