"""Mini-batches of edges with negatives and sampled neighbourhoods."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from configs.errors import RecipeError
from models.block import Batch
from tasks.graph_store import GraphStore
from tasks.train.loaders.base import Array, FeatureSource, Loader
from tasks.train.loaders.first_hop import choose_first_hop
from tasks.train.loaders.negatives import NegativeSampler
from tasks.train.loaders.neighbor import Neighborhoods
from tasks.train.loaders.sampling import Method, derive_key


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
        *,
        sampler: Method = "uniform",
        first_hop: str = "auto",
        reads_mean: bool = False,
    ) -> None:
        """Open a graph.

        Args:
            store: the graph.
            features: what the model reads of its nodes and edges.
            fanouts: from the seeds outwards, one a layer of the model.
            num_negatives: drawn for each edge.
            negatives: how (see `loaders/negatives.py`).
            sampler: how neighbours are drawn.
            first_hop: how the outermost hop reaches the model (`train.first_hop`).
            reads_mean: whether the model reads it only through a mean or sum (`GraphModel.reads_mean`).

        Raises:
            RecipeError: options that do not fit the graph or the model.
        """
        if first_hop == "precomputed":
            raise RecipeError(
                "train.first_hop=precomputed takes the mean over all neighbours, and the loader edge leaves the "
                "batch's own edges out; take train.first_hop=auto"
            )
        self.pairs = PairSource(store, num_negatives, negatives)
        self.num_seeds = self.pairs.num_seeds
        hop = choose_first_hop(first_hop, fanouts, features, reads_mean=reads_mean)
        self.neighborhoods = Neighborhoods(store, features, fanouts, sampler=sampler, first_hop=hop)

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
