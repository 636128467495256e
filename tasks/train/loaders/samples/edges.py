"""Pairs that an edge joins."""

from __future__ import annotations

import torch
from torch import Tensor

from configs.registry import LOADERS
from tasks.arrays import Array
from tasks.train.loaders.samples.pair_configs import EdgesConfig
from tasks.train.loaders.samples.pairs import DevicePairs, PairData, PairLoader

_CHUNK_PAIRS = 1 << 14


@LOADERS.register("edges")
class EdgePairs(PairLoader):
    """A chunk is random edges, each drawn by itself."""

    config: EdgesConfig

    def __init__(self, config: EdgesConfig, data: PairData) -> None:
        """Prepare the draws. Raises DataError: the graph has no edges."""
        super().__init__(config, data)
        self.drawn = self.walks(length=2, by_degree=True)
        self.room = _CHUNK_PAIRS
        self.expected = float(_CHUNK_PAIRS)

    def fill(self, chunk: int, *ends: Array) -> int:
        """Draw edges."""
        self.drawn.fill_edges(chunk * _CHUNK_PAIRS, *ends)
        return _CHUNK_PAIRS

    def on_device(self, device: torch.device, memory: int) -> DevicePairs:
        """Return what draws edges on a device, if the graph has room there."""
        has_room = self.drawn.num_bytes <= memory
        return _EdgesOnDevice(self, device) if has_room else super().on_device(device, memory)


class _EdgesOnDevice:
    """Makes the pairs of several chunks at once, on a device."""

    def __init__(self, loader: EdgePairs, device: torch.device) -> None:
        from tasks.sampling.device.walks_triton import DeviceWalks

        self.walks = DeviceWalks(loader.drawn, device)

    def fill(self, chunks: range) -> tuple[Tensor, Tensor, Tensor]:
        nodes, shape = self.walks.indices, (len(chunks), _CHUNK_PAIRS)
        sources, targets = nodes.new_empty(shape), nodes.new_empty(shape)
        self.walks.fill_edges(chunks.start * _CHUNK_PAIRS, sources.view(-1), targets.view(-1))
        counts = nodes.new_full(shape[:1], _CHUNK_PAIRS).long()
        return sources, targets, counts
