"""Batches of triples in a new order each epoch: against entities that are drawn, or against all at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from configs.errors import DataError
from configs.registry import LOADERS
from models.knowledge.base import Side
from tasks.arrays import Array, offsets
from tasks.counter_random import permute
from tasks.sampling.neighborhoods.fast_random import STEP, below, stream
from tasks.sampling.walks.alias import alias_table, draw_many
from tasks.train.loaders.base import SampleData
from tasks.train.loaders.configs import KVsAllConfig, OneVsAllConfig, TriplesConfig


@LOADERS.register("triples")
class TripleLoader:
    """A chunk is a batch. Epoch e is chunks e n to (e + 1) n - 1 of n; the last batch of an epoch may be smaller."""

    has_relations = True

    def __init__(self, config: TriplesConfig, data: SampleData) -> None:
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


_SIDES: tuple[Side, Side] = ("tail", "head")


@dataclass(frozen=True)
class AskedQueries:
    """Queries for one end, and the entities that are true for them."""

    side: Side
    known: Array
    """The other ends, int64 (n,)."""
    relations: Array
    """int64 (n,)."""
    rows: Array
    """int64 (m,), numbers of queries."""
    columns: Array
    """int64 (m,), a true entity of each."""


class AllEntities:
    """What both loaders have in common: batches by number, epoch after epoch."""

    config: OneVsAllConfig
    room: int
    """Queries, or triples, of a batch."""
    chunks_an_epoch: int

    def batch(self, chunk: int) -> list[AskedQueries]:
        """Return the queries of a batch."""
        raise AssertionError(f"{type(self).__name__} defines no batch")


@LOADERS.register("one_vs_all")
class OneVsAll(AllEntities):
    """Both ends of each triple of a batch are asked for; one entity is true."""

    def __init__(self, config: OneVsAllConfig, data: SampleData) -> None:
        """Raises DataError: there is no training triple."""
        self.config = config
        self.triples = TripleLoader(config, data)  # type: ignore[arg-type]  # it reads batch_size alone
        self.room, self.chunks_an_epoch = self.triples.room, self.triples.chunks_an_epoch

    def batch(self, chunk: int) -> list[AskedQueries]:
        """Take the triples of a batch."""
        ends, relations = np.empty((2, self.room), np.int64), np.empty(self.room, np.int32)
        count = self.triples.fill(chunk, *ends, relations)
        heads, tails = ends[:, :count]
        rows, asked = np.arange(count), relations[:count].astype(np.int64)
        return [AskedQueries("tail", heads, asked, rows, tails), AskedQueries("head", tails, asked, rows, heads)]


@LOADERS.register("k_vs_all")
class KVsAll(AllEntities):
    """A batch is some of the distinct queries of either side; all entities that training triples name are true."""

    def __init__(self, config: KVsAllConfig, data: SampleData) -> None:
        """Raises DataError: there is no training triple."""
        self.config, self.data = config, data
        triples = TripleLoader(config, data)  # type: ignore[arg-type]
        relations = np.asarray(triples.relations, np.int64)
        self._queries = [_distinct(triples.edges, end, relations, data.store.manifest.num_nodes) for end in (0, 1)]
        self._count = sum(len(queries.known) for queries in self._queries)
        self.room = min(config.batch_size, self._count)
        self.chunks_an_epoch = -(-self._count // self.room)

    def batch(self, chunk: int) -> list[AskedQueries]:
        """Take the queries of a batch; those for tails come first."""
        epoch, place = divmod(chunk, self.chunks_an_epoch)
        numbers = np.empty(min(self.room, self._count - place * self.room), np.int64)
        _permuted(self.data.key + epoch, self._count, place * self.room, numbers)
        first = len(self._queries[0].known)
        parts = numbers[numbers < first], numbers[numbers >= first] - first
        by_side = zip(_SIDES, self._queries, parts, strict=True)
        return [queries.taken(side, some) for side, queries, some in by_side if len(some)]


@dataclass(frozen=True)
class _Distinct:
    """The queries for one end, and what is true for them."""

    known: Array
    relations: Array
    starts: Array
    """int64 (n + 1,): where those lie that are true for a query."""
    true: Array

    def taken(self, side: Side, some: Array) -> AskedQueries:
        sizes = self.starts[some + 1] - self.starts[some]
        ends = offsets(sizes)
        places = np.arange(ends[-1]) + np.repeat(self.starts[some] - ends[:-1], sizes)
        rows = np.repeat(np.arange(len(some)), sizes)
        return AskedQueries(side, self.known[some], self.relations[some], rows, self.true[places])


def _distinct(edges: Array, end: int, relations: Array, entities: int) -> _Distinct:
    """Group triples by relation and one end."""
    keys = relations * entities + edges[:, end]
    order = np.argsort(keys, kind="stable")
    distinct, counts = np.unique(keys[order], return_counts=True)
    true = np.asarray(edges[:, 1 - end], np.int64)[order]
    return _Distinct(distinct % entities, distinct // entities, offsets(counts), true)


@njit(cache=True, nogil=True)
def _permuted(key, count, first, numbers):  # type: ignore[no-untyped-def]
    for i in range(len(numbers)):
        numbers[i] = permute(key, count, first + i)
