"""Mini-batches of edges with negatives and sampled neighbourhoods."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from configs.registry import LOADERS
from models.block import Batch
from tasks.sampling.neighbors import derive_key
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.base import Array, Loader, TrainingData
from tasks.train.loaders.config_base import NegativesConfig
from tasks.train.loaders.configs import EdgeConfig
from tasks.train.loaders.negatives import NegativeSampler
from tasks.train.loaders.neighbor import Neighborhoods


class PairSource:
    """Training edges and drawn negatives of each."""

    def __init__(self, store: GraphStore, config: NegativesConfig) -> None:
        """Draw `num_negatives` for each edge, by the kind `negatives` (see `loaders/negatives.py`)."""
        self.edges = store["train_edges"]
        self.negatives = NegativeSampler(store, config.negatives, config.num_negatives)
        self.num_seeds = len(self.edges)

    def draw(self, positions: Array, key: int) -> tuple[Array, Tensor]:
        """Return pairs, int64 (2, n * (1 + num_negatives)) with the positives first, and their target, 1 or 0."""
        positive = np.asarray(self.edges[positions], np.int64)
        negative = self.negatives.draw(positive, derive_key(key, 1))
        target = torch.zeros(len(positive) + len(negative))
        target[: len(positive)] = 1
        return np.ascontiguousarray(np.concatenate([positive, negative]).T), target


@LOADERS.register("edge")
class EdgeLoader(Loader):
    """Seeds are training edges; their ends' neighbourhoods are sampled without the batch's own positive edges.

    Left in, an edge would tell the model its own answer.
    """

    def __init__(self, config: EdgeConfig, data: TrainingData) -> None:
        """Open a graph. Raises RecipeError for options that do not fit it, or the model."""
        self.pairs = PairSource(data.store, config)
        self.num_seeds, self.batch_size = self.pairs.num_seeds, config.batch_size
        self.neighborhoods = Neighborhoods.of(config, config.first_hop, data)

    def batch(self, positions: Array, key: int) -> Batch:
        """Draw negatives and sample around all ends."""
        pairs, target = self.pairs.draw(positions, key)
        local, seeds = self.neighborhoods.sampler.number(pairs)
        blocks, inputs = self.neighborhoods.around(seeds, key, excluded=local[:, : len(positions)])
        return Batch(
            blocks=blocks,
            inputs=inputs,
            target=target,
            num_seeds=len(positions),
            pairs=torch.from_numpy(local),
            num_edges=sum(block.num_edges for block in blocks),
        )
