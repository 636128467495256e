"""Predicting with all ranks where a graph lies in parts: rank 0 evaluates, the others compute their nodes for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from models.base import GraphModel
from tasks.evaluators.prediction import Prediction
from tasks.inference.opened import Opened
from tasks.inference.parts import PartPredictor
from tasks.inference.predictor import Predictor
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.ranges import Exchange, Ranges
from tasks.storage.graph_store import Array
from tasks.storage.manifests import PartitionManifest
from tasks.train.ranks.collectives import from_main
from tasks.train.strategies.base import Ranks

_NODES, _SPLIT, _PAIRS, _END = "nodes", "split", "pairs", "end"
_NO_PAIRS = np.empty((0, 2), np.int64)


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
        self.interrupted = False
        """Whether an error came while all ranks computed: the others wait in the middle of it."""

    @contextmanager
    def _all_ranks(self, asked: str, argument: Any) -> Iterator[None]:
        """Have the other ranks compute too during the block."""
        self.interrupted = True
        from_main((asked, argument))
        yield
        self.interrupted = False

    def node_scores(self, model: GraphModel, nodes: Array) -> Array:
        """Score distinct nodes, int64 (n,), ascending: float32 (n, C)."""
        with self._all_ranks(_NODES, nodes):
            return _node_scores(self._parts, model, nodes)

    def link_scores(
        self,
        model: GraphModel,
        positive: Array,
        negative: Array,
        relations: tuple[Array, Array] | None = None,
        *,
        split: str | None = None,
    ) -> Prediction:
        """Score pairs: those of a split with all ranks, which have them too, others that only this rank knows."""
        if split is not None and f"{split}_negative" in self.store:
            with self._all_ranks(_SPLIT, split):
                return self._parts.split_pairs(model, split)
        with self._all_ranks(_PAIRS, None):
            scores = self._parts.link_scores(model, positive, negative)
            kinds = self.store.manifest.negative_kinds if negative.ndim == 3 else ()
            return replace(scores, relations=relations, negative_kinds=kinds)


def _node_scores(parts: PartPredictor, model: GraphModel, nodes: Array) -> Array:
    own_rows = slice(*np.searchsorted(nodes, parts.ranges.own))
    return parts.ranges.to_main(parts.node_scores(model, nodes[own_rows]))


@contextmanager
def together(opened: Opened, ranks: Ranks) -> Iterator[RankedPredictor | None]:
    """Yield rank 0's predictor, and None on the others, which compute until rank 0 has ended; all have joined."""
    manifest = opened.store.manifest
    assert isinstance(manifest, PartitionManifest)
    bounds = np.asarray(manifest.rank_bounds(ranks.world_size))
    exchange = Exchange(ranks.rank, ranks.world_size)
    part = PartGraph(opened.store, bounds, exchange, ranks.of_machine)
    alone = opened.predictor
    ranges = Ranges(part.bounds, exchange)
    parts = PartPredictor(part, ranges, device=alone.device, batch_size=alone.batch_size, scratch=alone.scratch)
    if not ranks.is_main:
        _serve(parts, opened.model)
        yield None
        return
    predictor = RankedPredictor(alone, parts)
    yield predictor
    from_main((_END, None))


def _serve(parts: PartPredictor, model: GraphModel) -> None:
    while True:
        nothing: tuple[str, Any] = "", None
        asked, argument = from_main(nothing)
        if asked == _END:
            return
        if asked == _NODES:
            _node_scores(parts, model, argument)
        elif asked == _PAIRS:
            parts.link_scores(model, _NO_PAIRS, _NO_PAIRS)
        else:
            parts.split_pairs(model, argument)
