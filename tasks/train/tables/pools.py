"""Pools of pairs, drawn by all threads and sorted by the blocks that they lie in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from models.kernels.threads import run_each
from tasks.arrays import Array
from tasks.train.loaders.pairs import PairLoader


@dataclass(frozen=True)
class Pool:
    """Pairs in buckets: those of block i with block j lie from starts[i, j] to ends[i, j]."""

    rows: Array
    """Row of each centre in its block, the ids' dtype (pairs,)."""
    columns: Array
    """Row of each context in its block."""
    starts: Array
    """int64 (n, n)."""
    ends: Array

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.rows)


def draw_pool(loader: PairLoader, chunks: range, num_blocks: int, id_type: Any) -> Pool:
    """Draw chunks and sort their pairs; within a bucket they keep their order, on any number of threads."""
    n, room = num_blocks, loader.room
    centres, contexts = (np.empty(len(chunks) * room, id_type) for _ in range(2))
    counts, sizes = np.zeros(len(chunks), np.int64), np.zeros((len(chunks), n, n), np.int64)

    def draw(number: int) -> None:
        place = slice(number * room, (number + 1) * room)
        counts[number] = loader.fill(chunks[number], centres[place], contexts[place])
        drawn = slice(place.start, place.start + counts[number])
        _count(centres[drawn], contexts[drawn], n, sizes[number])

    run_each(draw, len(chunks))
    by_bucket = sizes.transpose(1, 2, 0)
    ends = by_bucket.reshape(-1).cumsum().reshape(by_bucket.shape)  # of each chunk's share of a bucket
    places = np.ascontiguousarray((ends - by_bucket).transpose(2, 0, 1))
    rows: Array = np.empty(int(counts.sum()), id_type)
    columns: Array = np.empty_like(rows)

    def sort(number: int) -> None:
        drawn = slice(number * room, number * room + counts[number])
        _sort(centres[drawn], contexts[drawn], n, places[number], rows, columns)

    run_each(sort, len(chunks))
    lasts = np.ascontiguousarray(ends[:, :, -1])
    starts = np.concatenate([[0], lasts.reshape(-1)[:-1]]).reshape(n, n)
    return Pool(rows, columns, starts, lasts)


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
