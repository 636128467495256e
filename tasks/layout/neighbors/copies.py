"""Rows that repeat: a few copies of each are searched, the others take over what was found for those.

Else the nearest of a row with many copies would be copies alone, and they would lie apart from all the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.arrays import Array, blocks, offsets
from tasks.layout.neighbors.rows import NeighborLists


@dataclass(frozen=True)
class Copies:
    """Which rows are equal: n rows, of which the first `kept` copies of each are searched."""

    members: NDArray[np.int64]
    """Rows, equal ones side by side, ascending among them: (n,)."""
    begin: NDArray[np.int64]
    """Where those that are equal begin among `members`: (groups + 1,)."""
    kept: int

    @property
    def searched(self) -> NDArray[np.int64]:
        """The rows that are searched, ascending."""
        return np.sort(self.members[self._ordinal() < self.kept])

    @property
    def num_left(self) -> int:
        """How many rows are not searched."""
        return int(np.maximum(np.diff(self.begin) - self.kept, 0).sum())

    def _ordinal(self) -> NDArray[np.int64]:
        """The how manieth of its copies each of `members` is."""
        return np.arange(len(self.members)) - np.repeat(self.begin[:-1], np.diff(self.begin))

    def spread(self, neighbors: NeighborLists) -> NeighborLists:
        """Return the neighbours of all rows from those of the rows searched, (s, k) each, by their places there.

        A copy that was not searched has the one `kept` before it as its nearest, then the neighbours of the copy that
        was searched in its stead, each as the copy whose turn it is: no row gets all the edges.
        """
        n, k = len(self.members), neighbors[0].shape[1]
        place, group = np.empty(n, np.int64), np.empty(n, np.int64)
        ordinal = self._ordinal()
        place[self.members] = ordinal
        group[self.members] = np.repeat(np.arange(len(self.begin) - 1), np.diff(self.begin))
        searched = self.searched
        number = np.empty(n, np.int64)
        number[searched] = np.arange(len(searched))
        near, far = np.empty((n, k), np.int64), np.empty((n, k), np.float32)
        near[searched], far[searched] = searched[neighbors[0]], neighbors[1]
        left = self.members[ordinal >= self.kept]
        for part in blocks(len(left), 1 << 16):
            rows = left[part]
            turn, first = np.divmod(place[rows], self.kept)
            group_begin = self.begin[group[rows]]
            source = self.members[group_begin + first]
            near[rows, 0], far[rows, 0] = self.members[group_begin + place[rows] - self.kept], 0
            others = near[source, : k - 1]
            first, group_begin = place[others], self.begin[group[others]]
            alike = -((self.begin[group[others]] + first - self.begin[group[others] + 1]) // self.kept)
            near[rows, 1:] = self.members[group_begin + first + self.kept * (turn[:, None] % alike)]
            far[rows, 1:] = far[source, : k - 1]
        return near, far


def find_copies(vectors: Array, kept: int, block: int) -> Copies:
    """Return which rows of vectors (n, d) are equal as float32; `block` rows are read at a time.

    Equal are rows of one 64-bit hash: two of a million others have one by chance once in 10^7 times.
    """
    hashes = np.empty(len(vectors), np.uint64)
    for rows in blocks(len(vectors), block):
        # -0 is 0
        _hash_rows((np.array(vectors[rows], np.float32) + np.float32(0)).view(np.uint32), hashes[rows])
    members = np.argsort(hashes, kind="stable")
    ordered = hashes[members]
    changes = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    sizes = np.diff(np.concatenate([[0], changes, [len(members)]]))
    return Copies(members, offsets(sizes), kept)


@njit(cache=True, nogil=True)
def _hash_rows(words, hashes):  # type: ignore[no-untyped-def]
    """Set the hash of each row of uint32 (n, d)."""
    for i in range(len(words)):
        h = np.uint64(0x9E3779B97F4A7C15)
        for j in range(words.shape[1]):
            h = (h ^ np.uint64(words[i, j])) * np.uint64(0xFF51AFD7ED558CCD)
            h ^= h >> np.uint64(32)
        hashes[i] = h
