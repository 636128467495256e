"""Which edges of a relation a hop takes: among those before each destination's cut, at random or the newest.

For n destinations of a type with `width` slots, `low` and `size` int64 (n * width,) are the first edge that a
destination sees in each slot and how many it sees. What is drawn depends on the key, the cut and the slot (which is a
node and a relation), on nothing else. As in `neighborhoods/draws.py`, passes of independent loads follow each other.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.sampling.neighborhoods.draws import SMALL_FANOUT, floyd, selection
from tasks.sampling.neighborhoods.fast_random import stream

_SEARCHED_AHEAD = 8
"""Destinations by which the middle of a slot's times is asked for."""


@njit(cache=True, nogil=True)
def find_visible(nodes, slot_start, indptr, times, cut_numbers, cuts, limits, first_slots, low, size, totals):  # type: ignore[no-untyped-def]
    """Fill first_slots int64 (n,), low and size, and per slot of the type the sum of min(size, limit): totals (width,).

    `limits` int64 (width,): the hop's fan-out of each relation; those of limit 0 are left at size 0. `times` is None
    where there are no times or cuts.
    """
    n, width = len(nodes), len(limits)
    for i in range(n):
        if i + AHEAD < n:
            prefetch_item(slot_start, np.int64(nodes[i + AHEAD]))
        first_slots[i] = slot_start[nodes[i]]
    for i in range(n):
        if i + AHEAD < n:
            prefetch_item(indptr, first_slots[i + AHEAD])
            prefetch_item(indptr, first_slots[i + AHEAD] + width)
        start = first_slots[i]
        for column in range(width):
            begin = indptr[start + column]
            low[i * width + column] = begin
            size[i * width + column] = indptr[start + column + 1] - begin if limits[column] > 0 else 0
    if times is not None:
        _cut(times, cut_numbers, cuts, width, low, size)
    totals[:] = 0
    for i in range(n):
        for column in range(width):
            totals[column] += min(size[i * width + column], limits[column])


@njit(cache=True, nogil=True)
def _cut(times, cut_numbers, cuts, width, low, size):  # type: ignore[no-untyped-def]
    """Lower size to the edges whose time is below the destination's cut (binary search)."""
    for at in range(len(low)):
        ahead = at + _SEARCHED_AHEAD
        if ahead < len(low) and size[ahead] > 0:
            prefetch_item(times, low[ahead] + size[ahead] // 2)
        cut = cuts[cut_numbers[at // width]]
        start, count = low[at], size[at]
        found = start
        while count > 0:
            half = count // 2
            if times[found + half] < cut:
                found += half + 1
                count -= half + 1
            else:
                count = half
        size[at] = found - start


@njit(cache=True, nogil=True)
def draw_edges(column, width, first_slots, low, size, limit, recent, cut_keys, cut_numbers, counts, edges):  # type: ignore[no-untyped-def]
    """Take min(size, limit) edges of one relation for each destination: counts int64 (n + 1,), edges int64 (m,).

    Where a destination sees more, `recent` takes the last ones, else every set of `limit` is equally likely. `edges`
    has room for `limit` entries more than are taken, up to SMALL_FANOUT. `cut_numbers` None: all have cut_keys[0].
    """
    w = 0
    counts[0] = 0
    for i in range(len(first_slots)):
        start, d = low[i * width + column], size[i * width + column]
        if d <= limit or recent:
            start += max(0, d - limit)
            d = min(d, limit)
            # A loop of constant length is predicted well; what it writes beyond d is overwritten.
            for j in range(limit if limit <= SMALL_FANOUT else d):
                edges[w + j] = start + j
            w += d
        else:
            key = cut_keys[0] if cut_numbers is None else cut_keys[cut_numbers[i]]
            state = stream(key, first_slots[i] + column)
            if limit <= SMALL_FANOUT or limit * limit <= 16 * d:
                floyd(start, d, limit, state, edges, w)
            else:
                selection(start, d, limit, state, edges, w)
            w += limit
        counts[i + 1] = w


@njit(cache=True, nogil=True)
def keys_of_cuts(key, cuts, cut_keys):  # type: ignore[no-untyped-def]
    """Fill cut_keys uint64 (C,): what the draws of a hop under each cut depend on."""
    for c in range(len(cuts)):
        cut_keys[c] = stream(key, cuts[c])
