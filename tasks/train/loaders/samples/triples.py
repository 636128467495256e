"""Training triples in batches, and the entities that are drawn against them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from configs.errors import DataError
from configs.registry import LOADERS
from tasks.arrays import Array
from tasks.counter_random import permute
from tasks.sampling.neighborhoods.fast_random import STEP, below, stream
from tasks.sampling.walks.alias import alias_table, draw_many
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.configs import TriplesConfig


@dataclass(frozen=True)
class TripleData:
    """What a loader of triples is made for, beside its options: `Loader(config, data)`."""

    store: GraphStore
    key: int
    """Of all that is drawn, at least 0."""


@LOADERS.register("triples")
class TripleLoader:
    """A chunk is a batch. Epoch e is chunks e n to (e + 1) n - 1 of n; the last batch of an epoch may be smaller."""

    has_relations = True

    def __init__(self, config: TriplesConfig, data: TripleData) -> None:
        """Raises DataError: there is no training triple."""
        self.config, self.data = config, data
        self.edges, self.relations = data.store["train_edges"], data.store["train_relation"]
        if not len(self.edges):
            raise DataError(f"{data.store.manifest.dataset} has no training triples; look at dataset.split")
        self.room = min(config.batch_size, len(self.edges))
        self.chunks_an_epoch = -(-len(self.edges) // self.room)

    def fill(self, chunk: int, *columns: Array) -> int:
        """Write heads, tails and relations of a batch."""
        heads, tails, relations = columns
        epoch, place = divmod(chunk, self.chunks_an_epoch)
        first = place * self.room
        count = min(self.room, len(self.edges) - first)
        _take(self.edges, self.relations, self.data.key + epoch, first, heads[:count], tails[:count], relations)
        return count


class DrawnEntities:
    """Draws rows of entities to compare with, in any block of the table."""

    def __init__(self, degree: Array, num_blocks: int, power: float) -> None:
        """`degree`: triples of each entity (N,). Blocks none of whose entities has triples draw all alike."""
        self.sizes = [len(degree[block::num_blocks]) for block in range(num_blocks)]
        """Entities of each block."""
        self._tables = None
        if power:
            weights = np.asarray(degree, np.float64) ** power
            weights[np.asarray(degree) <= 0] = 0
            own = [weights[block::num_blocks] for block in range(num_blocks)]
            self._tables = [alias_table(some if some.any() else np.ones_like(some)) for some in own]

    def draw(self, block: int, key: int, drawn: Array) -> None:
        """Fill an array with rows of a block; what is drawn depends on the key alone."""
        if self._tables is None:
            _draw_uniform(self.sizes[block], key, drawn.reshape(-1))
        else:
            draw_many(self._tables[block], np.uint64(key), drawn.reshape(-1))


@njit(cache=True, nogil=True)
def _take(edges, relations, key, first, heads, tails, relations_out):  # type: ignore[no-untyped-def]
    for i in range(len(heads)):
        at = permute(key, len(edges), first + i)
        heads[i], tails[i], relations_out[i] = edges[at, 0], edges[at, 1], relations[at]


@njit(cache=True, nogil=True)
def _draw_uniform(size, key, drawn):  # type: ignore[no-untyped-def]
    state = stream(key, 0)
    for i in range(len(drawn)):
        state += STEP
        drawn[i] = below(state, size)


def negatives_shape(config: Any, count: int) -> tuple[int, int]:
    """Return the groups of triples that share what is drawn, and how many entities each is compared with."""
    return -(-count // (config.share or max(count, 1))), config.negatives


@njit(cache=True, nogil=True)
def hide_drawn(scores, asked, drawn):  # type: ignore[no-untyped-def]
    """Set scores, float32 (n, K), to -infinity where what was drawn (K,) is the entity that is asked for (n,)."""
    for i in range(len(asked)):
        true, same = asked[i], 0
        for k in range(len(drawn)):  # counted first: that takes 16 at a time
            same += drawn[k] == true
        if same:
            for k in range(len(drawn)):
                if drawn[k] == true:
                    scores[i, k] = -np.inf
