"""Mini-batches of nodes with sampled neighbourhoods."""

from __future__ import annotations

import numpy as np
import torch

from models.block import Batch, Block
from tasks.graph_store import GraphStore
from tasks.train.loaders.base import Array, FeatureSource, Loader, targets
from tasks.train.loaders.sampling import NeighborSampler, Sample


class NeighborLoader(Loader):
    """Seeds are labelled nodes; each layer sees a sample of in-edges (arXiv:1706.02216, section 3.1)."""

    def __init__(self, store: GraphStore, features: FeatureSource, fanouts: tuple[int, ...]) -> None:
        """`fanouts` from the seeds outwards, one a layer of the model."""
        self.manifest = store.manifest
        self.features = features
        self.nodes, self.labels = store["train_idx"], store["label"]
        self.num_seeds = len(self.nodes)
        self.sampler = NeighborSampler(store["csc_indptr"], store["csc_indices"], fanouts)

    def batch(self, positions: Array, key: int) -> Batch:
        """Sample around the seeds."""
        chosen = np.asarray(self.nodes[positions], np.int64)
        seeds, rows = np.unique(chosen, return_inverse=True)  # ascending: neighbours in memory are read together
        repeated = len(seeds) < len(chosen)
        nodes, layers = self.sampler.sample(seeds, key)
        blocks = make_blocks(layers, self.features)
        return Batch(
            blocks=blocks,
            inputs=self.features.inputs(nodes),
            target=targets(self.manifest, self.labels[chosen if repeated else seeds]),
            num_seeds=len(positions),
            rows=torch.from_numpy(rows) if repeated else None,
            num_edges=sum(block.num_edges for block in blocks),
        )


def make_blocks(layers: list[Sample], features: FeatureSource) -> list[Block]:
    """Turn sampled layers into blocks with their edges' features."""
    blocks = []
    for layer in layers:
        block = Block(
            torch.from_numpy(layer.indptr),
            torch.from_numpy(layer.indices),
            len(layer.degree),
            degree=torch.from_numpy(layer.degree),
        )
        blocks.append(features.attach(block, layer.positions))
    return blocks
