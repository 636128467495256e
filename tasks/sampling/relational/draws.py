"""Which edges of a relation a hop takes: among those before each destination's cut, at random or the newest.

For n destinations of a type with `width` slots, `low` and `size` int64 (n * width,) are the first edge that a
destination sees in each slot and how many it sees. What is drawn depends on the key, the cut and the slot (which is a
node and a relation), on nothing else. As in `neighborhoods/draws.py`, draws are a pass of their own.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.sampling.neighborhoods.draws import SMALL_FANOUT, floyd, selection
from tasks.sampling.neighborhoods.fast_random import stream
from tasks.sampling.relational.edges import cut_slots

_ONE = np.uint64(1)


@njit(cache=True, nogil=True)
def find_visible(nodes, slot_start, indptr, times, cut_numbers, cuts, limits, first_slots, low, size, totals):  # type: ignore[no-untyped-def]
    """Fill first_slots int64 (n,), low and size, and per slot of the type the sum of min(size, limit): totals (width,).

    `limits` int64 (width,): the hop's fan-out of each relation; those of limit 0 are left at size 0. `times` is None
    where there are no times or cuts; `cut_numbers` int32 (n,) is None where all have cuts[0].
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
        cut_slots(times, cut_numbers, cuts, width, low, size)
    totals[:] = 0
    for i in range(n):
        for column in range(width):
            totals[column] += min(size[i * width + column], limits[column])


@njit(cache=True, nogil=True)
def take_edges(  # type: ignore[no-untyped-def]
    column, width, first_slots, low, size, limit, recent, cut_keys, cut_numbers, entries, counts, taken, ids, positions
):
    """Take min(size, limit) edges of one relation for each destination.

    Where a destination sees more, `recent` takes the last ones, else every set of `limit` is equally likely.

    Args:
        column, width: which of a destination's slots, and how many it has.
        first_slots: int64 (n,), each destination's first slot.
        low, size: see `find_visible`.
        limit: edges to take; at least 1.
        recent: whether to take the last ones.
        cut_keys: uint64 (C,), by cut what draws depend on.
        cut_numbers: int32 (n,), the destinations' cuts; None: all have cut_keys[0].
        entries: (2 * E,), source and CSC position of each edge.
        counts: int64 (n + 1,), filled with the running sum of edges taken.
        taken: int64, overwritten; room for `limit` entries more than are taken, up to SMALL_FANOUT.
        ids: id (m,), filled with the sources.
        positions: int64 (m,), filled with CSC positions; None: not wanted.
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
                taken[w + j] = start + j
            w += d
        else:
            key = cut_keys[0] if cut_numbers is None else cut_keys[cut_numbers[i]]
            state = stream(key, first_slots[i] + column)
            if limit <= SMALL_FANOUT or limit * limit <= 16 * d:
                floyd(start, d, limit, state, taken, w)
            else:
                selection(start, d, limit, state, taken, w)
            w += limit
        counts[i + 1] = w
    last = np.int64(w - 1)
    for e in range(np.uint64(w)):  # unsigned places spare looking whether they count from the end
        prefetch_item(entries, 2 * taken[np.uint64(min(np.int64(e) + AHEAD, last))])
        at = np.uint64(taken[e]) << _ONE
        ids[e] = entries[at]
        if positions is not None:
            positions[e] = entries[at | _ONE]


@njit(cache=True, nogil=True)
def keys_of_cuts(key, cuts, cut_keys):  # type: ignore[no-untyped-def]
    """Fill cut_keys uint64 (C,): what the draws of a hop under each cut depend on."""
    for c in range(len(cuts)):
        cut_keys[c] = stream(key, cuts[c])
