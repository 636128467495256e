"""Predicting with all ranks where a graph lies in parts: rank 0 evaluates, the others compute their nodes for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from models.base import GraphModel
from tasks.evaluators.prediction import Prediction
from tasks.inference.opened import Opened
from tasks.inference.parts import PartPredictor
from tasks.inference.predictor import Predictor
from tasks.sampling.parts.exchange import Exchange
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.ranges import Ranges
from tasks.storage.graph_store import Array
from tasks.storage.manifests import PartitionManifest
from tasks.train.ranks.collectives import from_main, joined
from tasks.train.strategies.base import Ranks

_NODES, _SPLIT, _END = "nodes", "split", "end"


class RankedPredictor(Predictor):
    """Rank 0's: it asks all ranks for what it predicts of splits."""

    def __init__(self, alone: Predictor, parts: PartPredictor) -> None:
        super().__init__(
            alone.store,
            device=alone.device,
            batch_size=alone.batch_size,
            ranking_memory=alone.ranking_memory,
            scratch=alone.scratch,
        )
        self._parts = parts

    def node_scores(self, model: GraphModel, nodes: Array) -> Array:
        """Score distinct nodes, int64 (n,), ascending: float32 (n, C)."""
        from_main((_NODES, nodes))
        return _node_scores(self._parts, model, nodes)

    def predict(self, model: GraphModel, split: str) -> Prediction:
        """Score a split."""
        if self.store.manifest.task != "link" or f"{split}_negative" not in self.store:
            return super().predict(model, split)
        from_main((_SPLIT, split))
        return self._parts.predict(model, split)


def _node_scores(parts: PartPredictor, model: GraphModel, nodes: Array) -> Array:
    own = slice(*np.searchsorted(nodes, parts.ranges.own))
    return parts.ranges.to_main(parts.node_scores(model, nodes[own]))


@contextmanager
def together(opened: Opened, ranks: Ranks) -> Iterator[Predictor | None]:
    """Join the ranks; yield rank 0's predictor, and None on the others, which compute until rank 0 has ended."""
    with joined(ranks, torch.device("cpu")):
        manifest = opened.store.manifest
        assert isinstance(manifest, PartitionManifest)
        bounds = np.asarray(manifest.rank_bounds(ranks.world_size))
        exchange = Exchange(ranks.rank, ranks.world_size)
        part = PartGraph(opened.store, bounds, exchange, ranks.local_size)
        alone = opened.predictor
        ranges = Ranges(part.bounds, exchange)
        parts = PartPredictor(part, ranges, device=alone.device, batch_size=alone.batch_size, scratch=alone.scratch)
        if not ranks.is_main:
            _serve(parts, opened.model)
            yield None
            return
        try:
            yield RankedPredictor(alone, parts)
        finally:
            from_main((_END, None))


def _serve(parts: PartPredictor, model: GraphModel) -> None:
    while True:
        nothing: tuple[str, Any] = "", None
        asked, argument = from_main(nothing)
        if asked == _END:
            return
        if asked == _NODES:
            _node_scores(parts, model, argument)
        else:
            parts.predict(model, argument)
