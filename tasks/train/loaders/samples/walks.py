"""Pairs that are near each other on random walks."""

from __future__ import annotations

import threading

import numpy as np

from configs.registry import LOADERS
from tasks.arrays import Array
from tasks.sampling.walks.pairs import expected_pairs, fill_pairs, most_pairs
from tasks.train.loaders.samples.pair_configs import WalksConfig
from tasks.train.loaders.samples.pairs import PairData, PairLoader

_CHUNK_PAIRS = 1 << 14
"""About so many pairs a chunk: with their negatives they stay in a core's second-level cache."""


@LOADERS.register("walks")
class WalkPairs(PairLoader):
    """A chunk is some whole walks, and pairs come in the order of the walks: their rows are still in the caches."""

    config: WalksConfig

    def __init__(self, config: WalksConfig, data: PairData) -> None:
        """Prepare the walks. Raises DataError: the graph has no edges to walk along."""
        super().__init__(config, data)
        self.drawn = self.walks(length=config.length, by_degree=config.start == "degree", p=config.p, q=config.q)
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
