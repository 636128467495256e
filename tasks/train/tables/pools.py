"""Pools of pairs, drawn by all threads of all ranks and sorted by the blocks that they lie in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from models.kernels.threads import run_each
from tasks.arrays import Array
from tasks.train.loaders.pairs import PairLoader
from tasks.train.ranks.collectives import exchange, from_all
from tasks.train.strategies.base import Ranks

Allocate = Callable[[str, int, Any], Array]
"""allocate(name, count, dtype) returns room for items, in memory or in a file."""


@dataclass(frozen=True)
class Pool:
    """The pairs that this rank trains, in buckets of a block of centres and one of contexts."""

    rows: Array
    """Row of each centre in its block, the ids' dtype (pairs,)."""
    columns: Array
    """Row of each context in its block."""
    starts: Array
    """int64 (ranks, n, n): where those lie that a rank drew for a bucket."""
    ends: Array

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.rows)

    @property
    def sizes(self) -> Array:
        """Return the number of pairs in each bucket: int64 (n, n)."""
        sizes: Array = (self.ends - self.starts).sum(0)
        return sizes

    def parts(self, row: int, column: int, most: int) -> list[slice]:
        """Return where the pairs of a bucket lie, at most so many in each part."""
        ranges = zip(self.starts[:, row, column].tolist(), self.ends[:, row, column].tolist(), strict=True)
        return [slice(low, min(low + most, end)) for start, end in ranges for low in range(start, end, most)]


class PoolDraws:
    """Draws pools: each rank some of a pool's chunks, whose pairs it then sends to the ranks that train them."""

    def __init__(self, loader: PairLoader, owners: Array, ranks: Ranks, id_type: Any, allocate: Allocate) -> None:
        """`owners`: int (n, n), which rank trains the pairs of a bucket."""
        self.loader, self.owners, self.ranks = loader, owners, ranks
        self.id_type, self.allocate = np.dtype(id_type), allocate

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
        rows, columns = self._sort(own, places, int(by_bucket.sum()))
        counts = sizes.sum(0)
        if self.ranks.world_size == 1:
            stops = np.cumsum(counts.reshape(-1)).reshape(1, *counts.shape)
            return Pool(rows, columns, stops - counts, stops)
        return self._exchange(rows, columns, counts)

    def _count(self, chunks: Array) -> Array:
        """Return how many pairs of each chunk lie in each bucket: int64 (chunks, n, n)."""
        sizes = np.zeros((len(chunks), *self.owners.shape), np.int64)

        def count(number: int) -> None:
            centres, contexts = self._chunk(int(chunks[number]))
            _count(centres, contexts, len(self.owners), sizes[number])

        run_each(count, len(chunks))
        return sizes

    def _sort(self, chunks: Array, places: Array, total: int) -> tuple[Array, Array]:
        """Write the pairs of chunks into their places, int64 (chunks, n * n)."""
        rows, columns = (self.allocate(name, total, self.id_type) for name in ("rows", "columns"))

        def sort(number: int) -> None:
            centres, contexts = self._chunk(int(chunks[number]))
            _sort(centres, contexts, len(self.owners), places[number].reshape(self.owners.shape), rows, columns)

        run_each(sort, len(chunks))
        return rows, columns

    def _chunk(self, chunk: int) -> tuple[Array, Array]:
        centres, contexts = (np.empty(self.loader.room, self.id_type) for _ in range(2))
        count = self.loader.fill(chunk, centres, contexts)
        return centres[:count], contexts[:count]

    def _exchange(self, rows: Array, columns: Array, counts: Array) -> Pool:
        """Send the pairs that this rank drew to those that train them; `counts`: int64 (n, n), by bucket."""
        drawn: Array = np.stack(from_all(counts))
        mine = np.where(self.owners == self.ranks.rank, drawn, 0)
        received = mine.sum((1, 2))
        to_send = [int(counts[self.owners == rank].sum()) for rank in range(self.ranks.world_size)]
        found = []
        for name, items in (("own-rows", rows), ("own-columns", columns)):
            out = self.allocate(name, int(received.sum()), self.id_type)
            exchange(items, to_send, received.tolist(), out)
            found.append(out)
        # A rank's come in the order of its buckets, which is that of all buckets without those of other ranks.
        ends = mine.reshape(-1).cumsum().reshape(mine.shape)
        return Pool(found[0], found[1], ends - mine, ends)


@njit(cache=True, nogil=True)
def _count(centres, contexts, num_blocks, sizes):  # type: ignore[no-untyped-def]
    """Add to sizes int64 (n, n) how many pairs lie in each pair of blocks."""
    for i in range(len(centres)):
        sizes[centres[i] % num_blocks, contexts[i] % num_blocks] += 1


@njit(cache=True, nogil=True)
def _sort(centres, contexts, num_blocks, places, rows, columns):  # type: ignore[no-untyped-def]
    """Write each pair's rows within its blocks at the next place of its bucket; places int64 (n, n) move on."""
    for i in range(len(centres)):
        row, column = centres[i] % num_blocks, contexts[i] % num_blocks
        at = places[row, column]
        rows[at] = centres[i] // num_blocks
        columns[at] = contexts[i] // num_blocks
        places[row, column] = at + 1
