"""Scores of rows by sampling around them, each as of its own moment.

There is no pass through the layers for all nodes at once: what a node's vector is depends on who asks, and as of when.
"""

from __future__ import annotations

import numpy as np
import torch

from models.relational.base import RelationalModel
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.storage.graph_store import Array, GraphStore, slices

_KEY = 20_240_602
"""What is drawn: the same neighbours in every evaluation. A row's draws depend on no other row of its batch."""
_MOST_SEEDS = 1024
"""Rows that are scored at a time: each brings its neighbourhood."""


class SampledScores:
    """Scores labelled rows of one graph, by the fan-outs that a model remembers."""

    def __init__(self, store: GraphStore, model: RelationalModel) -> None:
        """Raises DataError: the graph's relations are not those that the model was trained on."""
        facts = model.facts
        fanouts = dict(zip(store.manifest.edge_types, facts.fanouts, strict=True))
        self.neighborhoods = TypedNeighborhoods(store, fanouts, newest=facts.newest)

    def scores(self, model: RelationalModel, nodes: Array, device: torch.device, batch_size: int) -> Array:
        """Score distinct labelled rows, int64 (n,): float32 (n, C). Inside of `evaluating`."""
        scores = np.empty((len(nodes), model.facts.out_dim), np.float32)
        no_target = torch.empty(0)
        for part in slices(len(nodes), min(batch_size, _MOST_SEEDS)):
            batch = self.neighborhoods.batch(np.asarray(nodes[part], np.int64), _KEY, no_target)
            scores[part] = model(batch.to(device)).float().cpu().numpy()
        return scores
