"""Pairs that an edge joins, in passes over all edges."""

from __future__ import annotations

import math

from configs.errors import DataError
from configs.registry import LOADERS
from tasks.arrays import Array
from tasks.sampling.walks.edge_passes import EdgePasses
from tasks.sampling.walks.random_walks import out_weights
from tasks.train.loaders.samples.pair_configs import EdgePassesConfig
from tasks.train.loaders.samples.pairs import WEIGHTS_WAY_OUT, PairData, PairLoader

_CHUNK_PAIRS = 1 << 14


@LOADERS.register("edge_passes")
class EdgePassPairs(PairLoader):
    """A chunk is what passes take of some entries that follow each other; passes follow each other too."""

    config: EdgePassesConfig

    def __init__(self, config: EdgePassesConfig, data: PairData) -> None:
        """Shuffle the edges. Raises DataError: the graph has none, or weights are not fit."""
        super().__init__(config, data)
        store = data.store
        weight = out_weights(store, symmetric=store.manifest.symmetric) if config.edge_weights else None
        try:
            self.passes = EdgePasses(store["csr_indptr"], store["csr_indices"], key=data.key, weight=weight)
        except ValueError as error:
            way_out = "look at preprocess and at components.keep" + (WEIGHTS_WAY_OUT if weight is not None else "")
            raise DataError(f"{store.manifest.dataset}: {error}; {way_out}") from error
        self.room = math.ceil(_CHUNK_PAIRS / self.passes.mean_share)
        self.expected = self.room * self.passes.mean_share

    def fill(self, chunk: int, *ends: Array) -> int:
        """Write what is taken of the chunk's entries."""
        return self.passes.fill(chunk * self.room, self.room, *ends)
