"""Pairs that are near each other on random walks."""

from __future__ import annotations

import threading

import numpy as np
import torch
from torch import Tensor

from configs.registry import LOADERS
from tasks.arrays import Array
from tasks.sampling.walks.pairs import expected_pairs, fill_pairs, most_pairs
from tasks.train.loaders.samples.pair_configs import WalksConfig
from tasks.train.loaders.samples.pairs import DevicePairs, PairData, PairLoader

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
        key = self.window_key
        return int(fill_pairs(tokens, config.window, config.forward, config.shrink, key, first, centres, contexts))

    @property
    def window_key(self) -> int:
        """Of the draws of windows: the walks take two."""
        return self.data.key + 2

    def on_device(self, device: torch.device, memory: int) -> DevicePairs:
        """Return what walks on a device, if the graph has room there."""
        has_room = self.drawn.num_bytes <= memory
        return _WalksOnDevice(self, device) if has_room else super().on_device(device, memory)


class _WalksOnDevice:
    """Makes the pairs of several chunks at once, on a device."""

    def __init__(self, loader: WalkPairs, device: torch.device) -> None:
        from tasks.sampling.device.walks_triton import DeviceWalks

        self.loader, self.walks = loader, DeviceWalks(loader.drawn, device)

    def fill(self, chunks: range) -> tuple[Tensor, Tensor, Tensor]:
        from tasks.sampling.device.walk_pairs_triton import fill_pairs

        loader, config, nodes = self.loader, self.loader.config, self.walks.indices
        first = chunks.start * loader.num_walks
        tokens = nodes.new_empty((len(chunks), loader.num_walks, config.length))
        self.walks.fill(first, tokens.view(-1, config.length))
        centres, contexts = (nodes.new_empty((len(chunks), loader.room)) for _ in range(2))
        counts = fill_pairs(
            tokens,
            config.window,
            forward=config.forward,
            shrink=config.shrink,
            key=loader.window_key,
            first=first,
            centres=centres,
            contexts=contexts,
        )
        return centres, contexts, counts
