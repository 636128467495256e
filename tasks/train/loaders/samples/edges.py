"""Pairs that an edge joins."""

from __future__ import annotations

from configs.registry import LOADERS
from tasks.arrays import Array
from tasks.train.loaders.samples.pair_configs import EdgesConfig
from tasks.train.loaders.samples.pairs import PairData, PairLoader

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
