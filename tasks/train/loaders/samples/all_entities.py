"""Queries in batches, each to be compared with all entities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from configs.registry import LOADERS
from models.knowledge.base import Side
from tasks.arrays import Array, offsets
from tasks.counter_random import permute
from tasks.train.loaders.configs import KVsAllConfig, OneVsAllConfig
from tasks.train.loaders.samples.triples import TripleData, TripleLoader

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

    def __init__(self, config: OneVsAllConfig, data: TripleData) -> None:
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

    def __init__(self, config: KVsAllConfig, data: TripleData) -> None:
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
        found = zip(_SIDES, self._queries, parts, strict=True)
        return [queries.taken(side, some) for side, queries, some in found if len(some)]


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
