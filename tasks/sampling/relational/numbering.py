"""Local numbers for the pairs (node, cut) of a batch, and the rows that they are known by.

One node may be in a batch under several cuts, and is then several rows. A pair is known by its key, the number of its
cut above the node's id. Keys stand in a hash table with open addressing, `table` int64
(2 * capacity,): a key and base + its local number side by side, so that a look-up misses the cache once. An entry below
the present batch's base is free; so nothing is cleared between batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import njit

from configs.errors import DataError
from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.sampling.neighborhoods.fast_random import output
from tasks.sampling.neighborhoods.relabel import relabel

CUT_SHIFT = 40
"""Bits of a key below the cut's number."""
_ONE, _TWO = np.uint64(1), np.uint64(2)


@njit(inline="always")
def _home(key, mask):  # type: ignore[no-untyped-def]
    return np.int64(output(np.uint64(key)) & mask)


@njit(inline="always")
def _place(key, mask):  # type: ignore[no-untyped-def]
    """Return where in a table of pairs the search for a key starts, an even uint64; `mask`: of even places."""
    return (output(np.uint64(key)) << _ONE) & mask


@njit(cache=True, nogil=True)
def number_pairs(ids, counts, dst_cuts, keys, local, nodes, node_cuts, num_nodes, table, base):  # type: ignore[no-untyped-def]
    """Give each source of a layer its local number, under its destination's cut; return how many pairs there are then.

    Args:
        ids: (m,) node ids of the sources.
        counts: int64 (n + 1,): those of destination i are counts[i] to counts[i + 1].
        dst_cuts: int32 (n,), numbers of the destinations' cuts.
        keys: int64 (m,), overwritten.
        local: int32 (m,), filled.
        nodes, node_cuts: id and int32, the pairs of the sources' type so far; new ones are appended.
        num_nodes: how many there are so far.
        table, base: the hash table, at most half full when all m are new.
    """
    for i in range(len(dst_cuts)):
        cut = np.int64(dst_cuts[i]) << CUT_SHIFT
        for e in range(counts[i], counts[i + 1]):
            keys[e] = cut | np.int64(ids[e])
    # Unsigned places spare looking whether they count from the end: a seventh of the time.
    mask, count, last = np.uint64(len(table) - 2), np.uint64(num_nodes), np.int64(len(ids) - 1)
    for e in range(np.uint64(len(ids))):
        ahead = np.uint64(min(np.int64(e) + AHEAD, last))
        prefetch_item(table, np.int64(_place(keys[ahead], mask)))
        key = keys[e]
        at = _place(key, mask)
        value = table[at | _ONE]
        while value >= base and table[at] != key:
            at = (at + _TWO) & mask
            value = table[at | _ONE]
        if value < base:
            value = base + np.int64(count)
            table[at], table[at | _ONE] = key, value
            nodes[count], node_cuts[count] = ids[e], key >> CUT_SHIFT
            count += _ONE
        local[e] = value - base
    return np.int64(count)


@njit(cache=True, nogil=True)
def move_entries(old, table, base):  # type: ignore[no-untyped-def]
    """Put the present batch's entries of `old` into `table`, whose values are all below base."""
    mask = np.uint64(len(table) - 2)
    for entry in range(0, len(old), 2):
        if old[entry + 1] >= base:
            at = _place(old[entry], mask)
            while table[at | _ONE] >= base:
                at = (at + _TWO) & mask
            table[at], table[at | _ONE] = old[entry], old[entry + 1]


@njit(cache=True, nogil=True)
def number_cuts(cuts, numbers):  # type: ignore[no-untyped-def]
    """Fill numbers int32 (n,) of cuts int64 (n,) and return the distinct cuts, int64 (C,), as they first appear."""
    size = 16
    while size < 2 * len(cuts):
        size *= 2
    table = np.full(size, -1, np.int32)
    mask, count = np.uint64(size - 1), 0
    distinct = np.empty(len(cuts), np.int64)
    for i in range(len(cuts)):
        at = _home(cuts[i], mask)
        while table[at] >= 0 and distinct[table[at]] != cuts[i]:
            at = (at + 1) & (size - 1)
        if table[at] < 0:
            table[at], distinct[count] = count, cuts[i]
            count += 1
        numbers[i] = table[at]
    return distinct[:count].copy()


_LAST_BASE = 1 << 30  # tables start over above it; a batch has room for as many rows
_FIRST_ROOM = 1 << 12


class Scratch:
    """Arrays by name that calls leave to the next: fresh memory costs a page fault every 4 KiB."""

    def __init__(self) -> None:
        self._arrays: dict[str, Array] = {}

    def array(self, name: str, count: int, dtype: Any) -> Array:
        """Return an array (count,) of arbitrary content, until its name is asked for again."""
        kept = self._arrays.get(name)
        if kept is None or len(kept) < count:
            kept = self._arrays[name] = np.empty(max(_FIRST_ROOM, count + count // 2), dtype)
        return kept[:count]


class Rows:
    """Numbers one batch's rows at a time. One cut: by an array of 4 bytes a node; several: by a hash table."""

    def __init__(self, type_sizes: Sequence[int], id_type: Any) -> None:
        self.num_types = len(type_sizes)
        self._num_nodes = sum(type_sizes)
        self._table = np.empty(0, np.int32)
        self._pairs = np.zeros(2 * _FIRST_ROOM, np.int64)
        self._nodes = [np.empty(_FIRST_ROOM, id_type) for _ in type_sizes]
        self._cut_numbers = [np.empty(_FIRST_ROOM, np.int32) for _ in type_sizes]
        self._base = 1
        self.num_cuts = 1
        self.counts = [0] * self.num_types
        """Rows of each type so far."""
        self.scratch = Scratch()

    def start(self, num_cuts: int) -> None:
        """Begin a batch without rows, with so many distinct cuts."""
        self._base += max(self.counts)
        self.counts = [0] * self.num_types
        self.num_cuts = num_cuts
        if self._base > _LAST_BASE:
            self._table.fill(0)
            self._pairs.fill(0)
            self._base = 1
        if num_cuts == 1 and not len(self._table):
            self._table = np.zeros(self._num_nodes + 1, np.int32)  # the last entry is of no node

    def nodes(self, kind: int) -> Array:
        """Return the node ids of a type's rows: a view that the next batch overwrites."""
        return self._nodes[kind][: self.counts[kind]]

    def cut_numbers(self, kind: int) -> Array | None:
        """Return the numbers of their cuts, int32 (n,); None where there is but one."""
        return self._cut_numbers[kind][: self.counts[kind]] if self.num_cuts > 1 else None

    def number(self, kind: int, ids: Array, indptr: Array, dst_cuts: Array | None, local: Array) -> None:
        """Fill local int32 (m,) with numbers of nodes of one type under their destinations' cuts; new rows at the end.

        Destination i has the nodes ids[indptr[i] : indptr[i + 1]] and cut number dst_cuts[i].
        """
        self._reserve(kind, len(ids))
        nodes, count = self._nodes[kind], self.counts[kind]
        if self.num_cuts == 1:
            self.counts[kind] = relabel(ids, local, nodes, count, self._table, self._base)
        else:
            keys = self.scratch.array("keys", len(ids), np.int64)
            pairs = nodes, self._cut_numbers[kind], count, self._pairs, self._base
            self.counts[kind] = number_pairs(ids, indptr, dst_cuts, keys, local, *pairs)

    def _reserve(self, kind: int, more: int) -> None:
        """Make room for more rows. Raises DataError where a batch has too many."""
        rows = self.counts[kind] + more
        if rows >= _LAST_BASE:
            raise DataError(f"a batch reaches {rows:,} edges; lower train.loader.batch_size or train.loader.fanout")
        for arrays in (self._nodes, self._cut_numbers):
            if len(arrays[kind]) <= rows:
                grown = np.empty(2 * rows, arrays[kind].dtype)
                grown[: self.counts[kind]] = arrays[kind][: self.counts[kind]]
                arrays[kind] = grown
        slots = 2 * (sum(self.counts) + more)
        if self.num_cuts > 1 and len(self._pairs) // 2 < slots:
            grown = np.zeros(2 << slots.bit_length(), np.int64)
            move_entries(self._pairs, grown, self._base)
            self._pairs = grown
