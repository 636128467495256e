"""A set of node pairs with marks, for finding them among edges that are read in chunks, and its hash table."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.arrays import Array
from tasks.counter_random import mix

FREE = -1
"""No key is negative."""


def key_table(capacity: int) -> NDArray[Any]:
    """Return an empty table, int64, that stays at most half full with `capacity` distinct keys."""
    return np.full(1 << max(4, (2 * capacity - 1).bit_length()), FREE, np.int64)


@njit(cache=True, nogil=True)
def slot(key, keys):  # type: ignore[no-untyped-def]
    """Return where `key` stands, or the free slot for it."""
    mask = np.int64(len(keys) - 1)
    at = np.int64(mix(np.uint64(key))) & mask
    while keys[at] != FREE and keys[at] != key:
        at = (at + 1) & mask
    return at


def pair_numbers(src: Array, dst: Array, num_nodes: int, *, directed: bool) -> Array:
    """Return src * num_nodes + dst of each pair, int64 (n,); without directions the smaller node comes first."""
    first, second = src.astype(np.int64), dst.astype(np.int64)
    if not directed:
        first, second = np.minimum(first, second), np.maximum(first, second)
    return first * num_nodes + second


class PairSet:
    """Pairs of nodes, each with eight marks: a hash table with open addressing.

    Memory: 18 to 36 bytes a pair. Finding one costs a miss of the cache where the table is large, 50 ns or so.
    """

    def __init__(self, capacity: int, num_nodes: int, *, directed: bool) -> None:
        """Take up to `capacity` distinct pairs of nodes below `num_nodes`; without directions a pair is its reverse."""
        self.num_nodes, self.directed = num_nodes, directed
        self._keys = key_table(capacity)
        self._marks = np.zeros(len(self._keys), np.uint8)

    def add(self, src: Array, dst: Array, mark: int) -> None:
        """Add pairs (n,), where they are not there yet, and a mark to each."""
        _insert(self._numbers(src, dst), np.uint8(mark), self._keys, self._marks)

    def mark(self, src: Array, dst: Array, mark: int) -> None:
        """Add a mark to those pairs (n,) that are in the set."""
        _mark(self._numbers(src, dst), np.uint8(mark), self._keys, self._marks)

    def marks(self, src: Array, dst: Array) -> Array:
        """Return the marks of pairs, uint8 (n,); 0 for those that are not in the set."""
        out = np.zeros(len(src), np.uint8)
        _read(self._numbers(src, dst), self._keys, self._marks, out)
        return out

    def pairs(self, without: int = 0) -> tuple[Array, Array]:
        """Return the ends of all pairs that have none of the marks `without`, int64 (n,) each, in no order."""
        keys = self._keys[(self._keys != FREE) & (self._marks & without == 0)]
        return keys // self.num_nodes, keys % self.num_nodes

    def count(self, marks: int) -> int:
        """Return how many pairs have one of the marks."""
        return int(np.count_nonzero(self._marks & marks))

    def _numbers(self, src: Array, dst: Array) -> Array:
        return pair_numbers(src, dst, self.num_nodes, directed=self.directed)


@njit(cache=True, nogil=True)
def _insert(numbers, mark, keys, marks):  # type: ignore[no-untyped-def]
    for key in numbers:
        at = slot(key, keys)
        keys[at] = key
        marks[at] |= mark


@njit(cache=True, nogil=True)
def _mark(numbers, mark, keys, marks):  # type: ignore[no-untyped-def]
    for key in numbers:
        at = slot(key, keys)
        if keys[at] == key:
            marks[at] |= mark


@njit(cache=True, nogil=True)
def _read(numbers, keys, marks, out):  # type: ignore[no-untyped-def]
    for i in range(len(numbers)):
        at = slot(numbers[i], keys)
        if keys[at] == numbers[i]:
            out[i] = marks[at]
