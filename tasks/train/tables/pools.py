"""Pools of pairs, drawn by all threads of all ranks and sorted by the blocks that they lie in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numba import njit

from models.kernels.threads import run_each
from tasks.arrays import Array
from tasks.train.ranks.collectives import exchange, from_all
from tasks.train.strategies.base import Ranks

_NAMES = ("rows", "columns", "relations")
Allocate = Callable[[str, int, Any], Array]
"""allocate(name, count, dtype) returns room for items, in memory or in a file."""


class SampleSource(Protocol):
    """Draws samples, chunk by chunk; any thread may ask for any chunk."""

    room: int
    """Samples of a chunk, at most."""
    has_relations: bool

    def fill(self, chunk: int, *columns: Array) -> int:
        """Write centres, contexts and, where there are any, relations into arrays (room,); return their number."""


@dataclass(frozen=True)
class Pool:
    """The pairs that this rank trains, in buckets of a block of centres and one of contexts.

    Where `PoolDraws` deals, bucket (i, n + j) has the pairs with both ends in block i that are trained beside block j,
    and (i, i) has none.
    """

    rows: Array
    """Row of each centre in its block, the ids' dtype (pairs,)."""
    columns: Array
    """Row of each context in its block."""
    relations: Array | None
    """Relation of each pair, int32; None: pairs have none."""
    starts: Array
    """int64 (ranks, n, n or 2 n): where those lie that a rank drew for a bucket."""
    ends: Array

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.rows)

    @property
    def num_blocks(self) -> int:
        """Return n."""
        return int(self.starts.shape[1])

    @property
    def sizes(self) -> Array:
        """Return the number of pairs in each bucket: int64 (n, n), with those that are trained beside a block."""
        n = self.num_blocks
        sizes: Array = (self.ends - self.starts).sum(0).reshape(n, -1, n).sum(1)
        return sizes

    def part(self, some: slice) -> tuple[Array, ...]:
        """Return some pairs: rows, columns, and relations where there are any."""
        ends = self.rows[some], self.columns[some]
        return ends if self.relations is None else (*ends, self.relations[some])

    def parts(self, row: int, column: int, most: int) -> list[slice]:
        """Return where the pairs of a bucket lie, at most so many in each part."""
        ranges = zip(self.starts[:, row, column].tolist(), self.ends[:, row, column].tolist(), strict=True)
        return [slice(low, min(low + most, end)) for start, end in ranges for low in range(start, end, most)]


class PoolDraws:
    """Draws pools: each rank some of a pool's chunks, whose pairs it then sends to the ranks that train them."""

    def __init__(
        self,
        loader: SampleSource,
        owners: Array,
        ranks: Ranks,
        id_type: Any,
        allocate: Allocate,
        *,
        deals: bool = False,
    ) -> None:
        """`owners`: int (n, n), which rank trains the pairs of a bucket; `id_type`: of the numbers of nodes and rows.

        `deals`: whether pairs with both ends in one block are dealt out over the buckets of that block and another one,
        for their negatives to come from both.
        """
        self.loader, self.ranks = loader, ranks
        self.owners = np.concatenate([owners, owners], 1) if deals else owners
        self.id_type, self.allocate = np.dtype(id_type), allocate
        self._types = [self.id_type, self.id_type, *([np.dtype(np.int32)] if loader.has_relations else [])]

    def draw(self, chunks: range) -> Pool:
        """Draw chunks twice, to count and to sort their pairs: half the memory, and draws take little time.

        Pairs of a bucket keep the order of their chunks, on any number of threads.
        """
        own = np.array_split(np.arange(chunks.start, chunks.stop), self.ranks.world_size)[self.ranks.rank]
        sizes = self._count(own)
        # Buckets one after the other, those for the same rank together.
        order = np.argsort(self.owners, axis=None, kind="stable")
        by_bucket = sizes.reshape(len(own), self.owners.size).T[order]
        ends = by_bucket.reshape(-1).cumsum().reshape(by_bucket.shape)  # of each chunk's share of a bucket
        places = np.empty((len(own), self.owners.size), np.int64)
        places[:, order] = (ends - by_bucket).T
        columns = self._sort(own, places, int(by_bucket.sum()))
        counts = sizes.sum(0)
        if self.ranks.world_size == 1:
            stops = np.cumsum(counts.reshape(-1)).reshape(1, *counts.shape)
            return _pool(columns, stops - counts, stops)
        return self._exchange(columns, counts)

    def _count(self, chunks: Array) -> Array:
        """Return how many pairs of each chunk lie in each bucket: int64 (chunks, n, n or 2 n)."""
        sizes = np.zeros((len(chunks), *self.owners.shape), np.int64)

        def count(number: int) -> None:
            chunk = int(chunks[number])
            centres, contexts, *_ = drawn_chunk(self.loader, chunk, self.id_type)
            _count(centres, contexts, chunk, sizes[number])

        run_each(count, len(chunks))
        return sizes

    def _sort(self, chunks: Array, places: Array, total: int) -> list[Array]:
        """Write the pairs of chunks into their places, int64 (chunks, n * n)."""
        columns = [self.allocate(name, total, kind) for name, kind in zip(_NAMES, self._types, strict=False)]
        relations_out = columns[2] if self.loader.has_relations else None

        def sort(number: int) -> None:
            chunk = int(chunks[number])
            centres, contexts, *further = drawn_chunk(self.loader, chunk, self.id_type)
            relations = further[0] if further else None
            own = places[number].reshape(self.owners.shape)
            _sort(centres, contexts, relations, chunk, own, columns[0], columns[1], relations_out)

        run_each(sort, len(chunks))
        return columns

    def _exchange(self, columns: list[Array], counts: Array) -> Pool:
        """Send the pairs that this rank drew to those that train them; `counts`: int64, by bucket."""
        drawn: Array = np.stack(from_all(counts))
        mine = np.where(self.owners == self.ranks.rank, drawn, 0)
        received = mine.sum((1, 2))
        to_send = [int(counts[self.owners == rank].sum()) for rank in range(self.ranks.world_size)]
        received_columns = []
        for name, items in zip(_NAMES, columns, strict=False):
            out = self.allocate(f"own-{name}", int(received.sum()), items.dtype)
            exchange(items, to_send, received.tolist(), out)
            received_columns.append(out)
        # A rank's come in the order of its buckets, which is that of all buckets without those of other ranks.
        ends = mine.reshape(-1).cumsum().reshape(mine.shape)
        return _pool(received_columns, ends - mine, ends)


def drawn_chunk(loader: SampleSource, chunk: int, id_type: Any) -> list[Array]:
    """Return the samples of a chunk: centres and contexts, and relations where there are any."""
    columns = [np.empty(loader.room, id_type) for _ in range(2)]
    columns += [np.empty(loader.room, np.int32)] if loader.has_relations else []
    count = loader.fill(chunk, *columns)
    return [column[:count] for column in columns]


def _pool(columns: list[Array], starts: Array, ends: Array) -> Pool:
    rows, others, *further = columns
    return Pool(rows, others, further[0] if further else None, starts, ends)


@njit(inline="always")
def _bucket(centre, context, turn, num_blocks, width):  # type: ignore[no-untyped-def]
    """Return the row and the column of a pair's bucket; one within a block is dealt to the others in turn."""
    row, column = centre % num_blocks, context % num_blocks
    if width > num_blocks > 1 and row == column:
        column = num_blocks + (row + 1 + turn % (num_blocks - 1)) % num_blocks
    return row, column


@njit(cache=True, nogil=True)
def _count(centres, contexts, chunk, sizes):  # type: ignore[no-untyped-def]
    """Add to sizes int64 (n, n or 2 n) how many pairs of a chunk lie in each bucket."""
    num_blocks, width = sizes.shape
    for i in range(len(centres)):
        row, column = _bucket(centres[i], contexts[i], chunk + i, num_blocks, width)
        sizes[row, column] += 1


@njit(cache=True, nogil=True)
def _sort(centres, contexts, relations, chunk, places, rows, columns, relations_out):  # type: ignore[no-untyped-def]
    """Write each pair's rows within its blocks at the next place of its bucket; places int64 (n, n or 2 n) move on."""
    num_blocks, width = places.shape
    for i in range(len(centres)):
        row, column = _bucket(centres[i], contexts[i], chunk + i, num_blocks, width)
        at = places[row, column]
        rows[at] = centres[i] // num_blocks
        columns[at] = contexts[i] // num_blocks
        if relations is not None:
            relations_out[at] = relations[i]
        places[row, column] = at + 1
