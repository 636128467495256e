"""Mini-batches of edges with negatives and sampled neighbourhoods."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from configs.registry import LOADERS
from models.block import Batch
from tasks.sampling.links.negatives import NegativeSampler
from tasks.sampling.neighborhoods.in_edges import Seeds
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.neighborhoods import PartNeighborhoods
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.base import Array, Loader, TrainingData
from tasks.train.loaders.config_base import NegativesConfig
from tasks.train.loaders.configs import EdgeConfig
from tasks.train.loaders.links.part_negatives import PartNegatives
from tasks.train.loaders.neighbor import open_neighborhoods


class PairSource:
    """Training edges and drawn negatives of each."""

    def __init__(self, store: GraphStore, config: NegativesConfig) -> None:
        self.edges = store["train_edges"]
        self.negatives: PartNegatives | NegativeSampler
        if isinstance(store, PartGraph):
            self.negatives = PartNegatives(store, config.num_negatives)
        else:
            self.negatives = NegativeSampler(store, config.num_negatives)
        self.num_seeds = len(self.edges)

    def draw_all(self, requests: Sequence[tuple[Array, int]]) -> list[tuple[Array, Tensor]]:
        """Return pairs and their target, 1 or 0, for each pair of positions and key.

        Pairs are int64 (2, n * (1 + num_negatives)), the positives first.
        """
        positives = [np.asarray(self.edges[positions], np.int64) for positions, _ in requests]
        keys = [derive_key(key, 1) for _, key in requests]
        negatives = self.negatives.draw_all(list(zip(positives, keys, strict=True)))
        return [_pairs_and_target(*both) for both in zip(positives, negatives, strict=True)]


def _pairs_and_target(positive: Array, negative: Array) -> tuple[Array, Tensor]:
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
        self.neighborhoods = open_neighborhoods(config, config.first_hop, data)

    def batch(self, positions: Array, key: int) -> Batch:
        """Draw negatives and sample around all ends."""
        return next(self.batches([(positions, key)]))

    def batches(self, requests: Sequence[tuple[Array, int]]) -> Iterator[Batch]:
        """Draw negatives and sample around all ends, for each request."""
        drawn = self.pairs.draw_all(requests)
        pairs, seeds = self._seeds(drawn, requests)
        around = self.neighborhoods.around_all(seeds)
        for (positions, _), (_, target), local, (blocks, inputs) in zip(requests, drawn, pairs, around, strict=True):
            batch = Batch(blocks, inputs, target, len(positions), pairs=torch.from_numpy(local))
            batch.num_edges = sum(block.num_edges for block in blocks)
            yield batch

    def rehearse(self, groups: Sequence[Sequence[tuple[Array, int]]]) -> None:
        """Find out what such batches read."""
        if isinstance(self.neighborhoods, PartNeighborhoods):
            groups_of_seeds = [self._seeds(self.pairs.draw_all(requests), requests)[1] for requests in groups]
            self.neighborhoods.keep_most_read(groups_of_seeds)

    def _seeds(
        self, drawn: Sequence[tuple[Array, Tensor]], requests: Sequence[tuple[Array, int]]
    ) -> tuple[list[Array], list[Seeds]]:
        """Return each request's pairs in local numbers, int64 (2, n), and what is sampled around them."""
        numbered = [self.neighborhoods.number(pairs) for pairs, _ in drawn]
        seeds = [
            Seeds(nodes, key, excluded=local[:, : len(positions)])
            for (local, nodes), (positions, key) in zip(numbered, requests, strict=True)
        ]
        return [local for local, _ in numbered], seeds
