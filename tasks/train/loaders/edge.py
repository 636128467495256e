"""Mini-batches of edges with negatives and sampled neighbourhoods."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from models.block import Batch
from tasks.graph_store import GraphStore
from tasks.train.loaders.base import Array, FeatureSource, Loader
from tasks.train.loaders.negatives import NegativeSampler
from tasks.train.loaders.neighbor import make_blocks
from tasks.train.loaders.sampling import NeighborSampler, derive_key


class PairSource:
    """Training edges and drawn negatives of each."""

    def __init__(self, store: GraphStore, num_negatives: int, negatives: str = "uniform") -> None:
        """Draw `num_negatives` for each edge, by the kind `negatives` (see `loaders/negatives.py`)."""
        self.edges = store["train_edges"]
        self.negatives = NegativeSampler(store, negatives, num_negatives)
        self.num_seeds = len(self.edges)

    def draw(self, positions: Array, key: int) -> tuple[Array, Tensor]:
        """Return pairs, int64 (2, n * (1 + num_negatives)) with the positives first, and their target, 1 or 0."""
        positive = np.asarray(self.edges[positions], np.int64)
        negative = self.negatives.draw(positive, derive_key(key, 1))
        target = torch.zeros(len(positive) + len(negative))
        target[: len(positive)] = 1
        return np.ascontiguousarray(np.concatenate([positive, negative]).T), target


class EdgeLoader(Loader):
    """Seeds are training edges; their ends' neighbourhoods are sampled without the batch's own positive edges.

    Left in, an edge would tell the model its own answer.
    """

    def __init__(
        self,
        store: GraphStore,
        features: FeatureSource,
        fanouts: tuple[int, ...],
        num_negatives: int,
        negatives: str = "uniform",
    ) -> None:
        self.pairs = PairSource(store, num_negatives, negatives)
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
