"""Kernels that lay a typed graph's in-edges in order: by target, relation, time and source.

A slot is a pair of a node and a relation that its type can be the target of. `column_of` int64 (R,) says which of its
target's slots a relation has, -1 for relations that are left out; `slot_start` int64 (N + 1,) is each node's first one.
Without times or types the arrays are None. All loops run over a range of nodes, whose edges are theirs alone.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.storage.graph_store import ALWAYS

_FEW = 24
"""Up to so many edges an insertion sort is faster than numba's merge sort and its copies."""


@njit(cache=True, nogil=True)
def count_edges(first, last, csc_indptr, edge_type, column_of, slot_start, counts, strays):  # type: ignore[no-untyped-def]
    """Add up each slot's edges into counts int64 (S,); put an edge that has no slot at its target into strays (1,)."""
    for v in range(first, last):
        start, width = slot_start[v], slot_start[v + 1] - slot_start[v]
        for e in range(csc_indptr[v], csc_indptr[v + 1]):
            column = column_of[0] if edge_type is None else column_of[edge_type[e]]
            if column >= width:
                strays[0] = e
            elif column >= 0:
                counts[start + column] += 1


@njit(cache=True, nogil=True)
def fill_slots(  # type: ignore[no-untyped-def]
    first,
    last,
    csc_indptr,
    csc_indices,
    edge_type,
    edge_time,
    node_time,
    own_keys,
    column_of,
    slot_start,
    indptr,
    entries,
    times,
    origin,
    least,
):
    """Fill entries (E, 2), sources and CSC positions, and times (E,) or None, each slot by time, then source.

    An edge is there as soon as it and its source are: its time is the later one of theirs; it is kept less `origin` and
    at least `least` (see `cuts.Clock`). Of relations in `own_keys` bool (R,), whose targets name their sources by a
    foreign key, it is ALWAYS where it is not later than the target. `indptr` int64 (S + 1,) is that of the slots.
    """
    widest = 1
    for v in range(first, last):
        widest = max(widest, slot_start[v + 1] - slot_start[v])
    places = np.empty(widest, np.int64)
    stop = csc_indptr[last]
    for v in range(first, last):
        start, width = slot_start[v], slot_start[v + 1] - slot_start[v]
        for column in range(width):
            places[column] = indptr[start + column]
        for e in range(csc_indptr[v], csc_indptr[v + 1]):
            if node_time is not None and e + AHEAD < stop:
                prefetch_item(node_time, np.int64(csc_indices[e + AHEAD]))
            column = column_of[0] if edge_type is None else column_of[edge_type[e]]
            if column < 0:
                continue
            place = places[column]
            places[column] = place + 1
            entries[place, 0], entries[place, 1] = csc_indices[e], e
            if times is not None:
                time = _time(edge_time, e, node_time, csc_indices[e])
                if node_time is not None and own_keys[0 if edge_type is None else edge_type[e]]:
                    time = np.int64(ALWAYS) if time <= node_time[v] else time
                times[place] = max(time - origin, least)
        if times is not None:
            for slot in range(start, start + width):
                _sort(indptr[slot], indptr[slot + 1], entries, times)


@njit(inline="always")
def _time(edge_time, e, node_time, source):  # type: ignore[no-untyped-def]
    """Return from when on edge `e` is there; `ALWAYS` without times."""
    time = np.int64(ALWAYS)
    if edge_time is not None:
        time = edge_time[e]
    if node_time is not None:
        time = max(time, node_time[source])
    return time


@njit(cache=True, nogil=True)
def _sort(low, high, entries, times):  # type: ignore[no-untyped-def]
    """Sort edges low to high - 1 by time; those of one time stay in their order, which is that of their sources."""
    if high - low <= _FEW:
        for e in range(low + 1, high):
            time, source, position = times[e], entries[e, 0], entries[e, 1]
            at = e
            while at > low and times[at - 1] > time:
                times[at], entries[at, 0], entries[at, 1] = times[at - 1], entries[at - 1, 0], entries[at - 1, 1]
                at -= 1
            times[at], entries[at, 0], entries[at, 1] = time, source, position
        return
    ordered = True
    for e in range(low + 1, high):
        if times[e] < times[e - 1]:
            ordered = False
            break
    if not ordered:
        order = np.argsort(times[low:high], kind="mergesort")
        old_times, old_entries = times[low:high].copy(), entries[low:high].copy()
        for i in range(high - low):
            times[low + i] = old_times[order[i]]
            entries[low + i, 0], entries[low + i, 1] = old_entries[order[i], 0], old_entries[order[i], 1]
