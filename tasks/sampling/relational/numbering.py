"""Local numbers for the pairs (node, cut) of a batch.

One node may be in a batch under several cuts, and is then several rows. A pair is known by its key, the number of its
cut above the node's id. Keys stand in a hash table with open addressing, `table` int64
(2 * capacity,): a key and base + its local number side by side, so that a look-up misses the cache once. An entry below
the present batch's base is free; so nothing is cleared between batches.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.sampling.neighborhoods.fast_random import output

CUT_SHIFT = 40
"""Bits of a key below the cut's number."""
_ONE, _TWO = np.uint64(1), np.uint64(2)


@njit(inline="always")
def _home(key, mask):  # type: ignore[no-untyped-def]
    """Return where the search for a key starts."""
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
