"""Scores of rows by sampling around them, each as of its own moment.

There is no pass through the layers for all nodes at once: what a node's vector is depends on who asks, and as of when.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from models.relational.base import RelationalModel
from models.relational.batch import TypedBatch
from tasks.arrays import blocks
from tasks.inference.layerwise import scratch_array
from tasks.sampling.relational.batches import TypedNeighborhoods
from tasks.storage.graph_store import Array, GraphStore

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
        self.neighborhoods = TypedNeighborhoods(
            store, fanouts, newest=facts.newest, numbered=model.numbered, walks=model.walks
        )

    def scores(self, model: RelationalModel, nodes: Array, device: torch.device, batch_size: int) -> Array:
        """Score distinct labelled rows, int64 (n,): float32 (n, C). Inside of `evaluating`."""
        scores = np.empty((len(nodes), model.facts.out_dim), np.float32)
        for part, batch in self._batches(nodes, device, batch_size):
            scores[part] = model(batch).float().cpu().numpy()
        return scores

    def vectors(self, model: RelationalModel, nodes: Array, device: torch.device, scratch: Path | None) -> Array:
        """Return the vectors that such rows are scored by, float32 (n, vector_dim), in a scratch file."""
        vectors = scratch_array(scratch, len(nodes), model.vector_dim)
        for part, batch in self._batches(nodes, device, _MOST_SEEDS):
            assert batch.rows is not None
            vectors[part] = model.represent(batch)[batch.rows].float().cpu().numpy()
        return vectors

    def _batches(self, nodes: Array, device: torch.device, batch_size: int) -> Iterator[tuple[slice, TypedBatch]]:
        for part in blocks(len(nodes), min(batch_size, _MOST_SEEDS)):
            yield part, self.batch(nodes[part]).to(device)

    def batch(self, nodes: Array) -> TypedBatch:
        """Return what distinct labelled rows, int64 (n,), are scored from."""
        return self.neighborhoods.batch(np.asarray(nodes, np.int64), _KEY, torch.empty(0))
