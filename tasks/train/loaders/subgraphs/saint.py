"""GraphSAINT: subgraphs of drawn nodes, edges or walks, with weights that undo what the drawing prefers."""

from __future__ import annotations

import threading

import numpy as np
import torch

from configs.registry import LOADERS
from models.block import Batch
from tasks.train.loaders.base import TrainingData
from tasks.train.loaders.configs import SaintConfig, SaintEdgeConfig, SaintNodeConfig, SaintWalkConfig
from tasks.train.loaders.subgraphs.saint_draws import (
    Draws,
    EdgeDraws,
    NodeDraws,
    WalkDraws,
    inclusion,
    inverse_conditional,
)
from tasks.train.loaders.subgraphs.subgraph import SubgraphLoader, distinct


class _Place(threading.local):
    """A number for every node of the graph, for each thread; only what was written for a batch is read."""

    def __init__(self, num_nodes: int) -> None:
        self.table = np.empty(num_nodes, np.int32)


class SaintLoader(SubgraphLoader):
    """Subgraphs induced by what `batch_size` draws reach (Zeng et al., ICLR 2020, https://arxiv.org/abs/1907.04931).

    With p_v the probability that the subgraph has node v and p_uv that it has both u and v:

    - edge u -> v gets the weight p_v / p_uv, so that the weighted sum over v's in-edges in the subgraph is, in
      expectation, the sum over all of them (section 3.2, aggregator normalisation);
    - node v's loss gets the weight 1 / (p_v T), T training nodes, so that the weighted sum of the losses is, in
      expectation, their mean over the split (loss normalisation).

    Degrees are those in the whole graph. An epoch has as many batches as bring T training nodes in expectation.
    """

    def __init__(self, config: SaintConfig, data: TrainingData, draws: Draws) -> None:
        super().__init__(data.store, data.features)
        self.size, self.draws = config.batch_size, draws
        met = float(inclusion(draws.contains[self.is_train], self.size).sum())
        # nodes that are never drawn (without edges) can leave nothing to meet
        self.num_batches = max(1, round(self.num_seeds / met)) if met else 1
        self._place = _Place(self.manifest.num_nodes)

    def epoch_batch(self, epoch: int, number: int, key: int) -> Batch:
        """Draw a subgraph by `key` alone."""
        nodes = distinct(self.draws.draw(self.size, key))
        place = self._place.table
        place[nodes] = np.arange(len(nodes), dtype=np.int32)
        wanted = self.features.reads_edges or self.draws.needs_positions
        block, positions = self.subgraph(nodes, place, 0, positions=wanted)
        indptr, indices, contains = block.indptr.numpy(), block.indices.numpy(), self.draws.contains[nodes]
        joint = self.draws.joint(nodes, indptr, indices, positions)
        block.weight = torch.from_numpy(inverse_conditional(indptr, indices, contains, joint, self.size))
        block.degree = torch.from_numpy((self.indptr[nodes + 1] - self.indptr[nodes]).astype(np.float32))
        batch = self.make_batch(nodes, block, positions, key)
        assert batch.rows is not None
        met = inclusion(contains[batch.rows.numpy()], self.size)
        share = len(met) / max(1, int(self.is_train[nodes].sum()))  # a model that reads labels is share about half
        batch.seed_weight = torch.from_numpy((1 / (met * self.num_seeds * share)).astype(np.float32))
        return batch


@LOADERS.register("saint_node")
class SaintNodeLoader(SaintLoader):
    """Nodes are drawn by degree."""

    def __init__(self, config: SaintNodeConfig, data: TrainingData) -> None:
        super().__init__(config, data, NodeDraws(data.store))


@LOADERS.register("saint_edge")
class SaintEdgeLoader(SaintLoader):
    """Edges are drawn, and have both ends in the subgraph."""

    def __init__(self, config: SaintEdgeConfig, data: TrainingData) -> None:
        """Raises RecipeError where there are no edges."""
        super().__init__(config, data, EdgeDraws(data.store))


@LOADERS.register("saint_walk")
class SaintWalkLoader(SaintLoader):
    """Random walks are drawn by their roots."""

    def __init__(self, config: SaintWalkConfig, data: TrainingData) -> None:
        super().__init__(config, data, WalkDraws(data.store, config.walk_length, data.seed))
