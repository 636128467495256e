"""What a loader of pairs is: it makes the positive samples of tables, a chunk at a time, on any thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from configs.errors import DataError
from tasks.arrays import Array
from tasks.sampling.walks.random_walks import Walks, out_weights
from tasks.storage.graph_store import GraphStore

WEIGHTS_WAY_OUT = ", or leave the weights alone with train.loader.edge_weights=false"


@dataclass(frozen=True)
class PairData:
    """What a loader of pairs is made for, beside its options: `Loader(config, data)`."""

    store: GraphStore
    key: int
    """Of all that is drawn, at least 0."""


class PairLoader:
    """Makes pairs of nodes: a chunk depends on the key and its number alone, threads may make several at once."""

    room: int
    """Pairs of a chunk at most."""
    expected: float
    """Pairs of a chunk on average."""
    has_relations = False

    def __init__(self, config: Any, data: PairData) -> None:
        """Prepare the draws. Raises DataError: the graph has nothing to draw."""
        self.config, self.data = config, data

    def fill(self, chunk: int, *ends: Array) -> int:
        """Write centres and contexts of a chunk, of the ids' dtype, into two arrays (room,); return their number."""
        raise AssertionError(f"{type(self).__name__} defines no fill")

    def walks(self, **options: Any) -> Walks:
        """Return walks over the graph's edges, by their weights where the recipe and the graph have it so."""
        store = self.data.store
        weight = out_weights(store, symmetric=store.manifest.symmetric) if self.config.edge_weights else None
        way_out = "look at preprocess and at components.keep"
        if weight is not None:
            way_out += WEIGHTS_WAY_OUT
        try:
            return Walks(store["csr_indptr"], store["csr_indices"], key=self.data.key, weight=weight, **options)
        except ValueError as error:
            raise DataError(f"{store.manifest.dataset}: {error}; {way_out}") from error
