"""Loaders of pairs: they make the positive samples of tables, a chunk at a time, on any thread."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from configs.errors import DataError
from configs.registry import LOADERS
from tasks.arrays import Array
from tasks.sampling.walks.alias import EdgePasses
from tasks.sampling.walks.random_walks import Walks, expected_pairs, fill_pairs, most_pairs, out_weights
from tasks.train.loaders.base import SampleData
from tasks.train.loaders.configs import EdgePassesConfig, EdgesConfig, WalksConfig

_CHUNK_PAIRS = 1 << 14
"""About so many pairs a chunk: with their negatives they stay in a core's second-level cache."""
Drawn = TypeVar("Drawn", Walks, EdgePasses)


class PairLoader:
    """Makes pairs of nodes: a chunk depends on the key and its number alone, threads may make several at once."""

    room: int
    """Pairs of a chunk at most."""
    expected: float
    """Pairs of a chunk on average."""
    has_relations = False

    def __init__(self, config: Any, data: SampleData) -> None:
        """Prepare the draws. Raises DataError: the graph has nothing to draw."""
        self.config, self.data = config, data

    def fill(self, chunk: int, *ends: Array) -> int:
        """Write centres and contexts of a chunk, of the ids' dtype, into two arrays (room,); return their number."""
        raise AssertionError(f"{type(self).__name__} defines no fill")

    def over_edges(self, make: Callable[..., Drawn], **options: Any) -> Drawn:
        """Return what draws from the graph's edges, by their weights where the recipe and the graph have it so."""
        store = self.data.store
        weight = out_weights(store, symmetric=store.manifest.symmetric) if self.config.edge_weights else None
        try:
            return make(store["csr_indptr"], store["csr_indices"], key=self.data.key, weight=weight, **options)
        except ValueError as error:
            way_out = "look at preprocess and at components.keep"
            if weight is not None:
                way_out += ", or leave the weights alone with train.loader.edge_weights=false"
            raise DataError(f"{store.manifest.dataset}: {error}; {way_out}") from error


@LOADERS.register("edges")
class EdgePairs(PairLoader):
    """A chunk is random edges, each drawn by itself."""

    config: EdgesConfig

    def __init__(self, config: EdgesConfig, data: SampleData) -> None:
        """Prepare the draws. Raises DataError: the graph has no edges."""
        super().__init__(config, data)
        self.drawn = self.over_edges(Walks, length=2, by_degree=True)
        self.room = _CHUNK_PAIRS
        self.expected = float(_CHUNK_PAIRS)

    def fill(self, chunk: int, *ends: Array) -> int:
        """Draw edges."""
        self.drawn.fill_edges(chunk * _CHUNK_PAIRS, *ends)
        return _CHUNK_PAIRS


@LOADERS.register("edge_passes")
class EdgePassPairs(PairLoader):
    """A chunk is what passes take of some entries that follow each other; passes follow each other too."""

    config: EdgePassesConfig

    def __init__(self, config: EdgePassesConfig, data: SampleData) -> None:
        """Shuffle the edges. Raises DataError: the graph has none, or weights are not fit."""
        super().__init__(config, data)
        self.passes = self.over_edges(EdgePasses)
        self.room = math.ceil(_CHUNK_PAIRS / self.passes.mean_share)
        self.expected = self.room * self.passes.mean_share

    def fill(self, chunk: int, *ends: Array) -> int:
        """Write what is taken of the chunk's entries."""
        return self.passes.fill(chunk * self.room, self.room, *ends)


@LOADERS.register("walks")
class WalkPairs(PairLoader):
    """A chunk is some whole walks, and pairs come in the order of the walks: their rows are still in the caches."""

    config: WalksConfig

    def __init__(self, config: WalksConfig, data: SampleData) -> None:
        """Prepare the walks. Raises DataError: the graph has no edges to walk along."""
        super().__init__(config, data)
        self.drawn = self.over_edges(
            Walks, length=config.length, by_degree=config.start == "degree", p=config.p, q=config.q
        )
        most = most_pairs(config.length, config.window, config.forward)
        self.num_walks = max(1, _CHUNK_PAIRS // most)
        self.room = self.num_walks * most
        self.expected = self.num_walks * expected_pairs(config.length, config.window, config.forward, config.shrink)
        self._local = threading.local()

    def fill(self, chunk: int, *ends: Array) -> int:
        """Walk, and take the pairs."""
        centres, contexts = ends
        config, first = self.config, chunk * self.num_walks
        tokens = getattr(self._local, "tokens", None)
        if tokens is None:
            tokens = self._local.tokens = np.empty((self.num_walks, config.length), centres.dtype)
        self.drawn.fill(first, tokens)
        key = self.data.key + 2  # the walks take two
        return int(fill_pairs(tokens, config.window, config.forward, config.shrink, key, first, centres, contexts))
