"""A typed graph's in-edges in the order in which batches as of a moment read them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from configs.errors import DataError
from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from models.kernels.threads import CHUNKS_A_THREAD, num_threads, run_each
from tasks.arrays import Array, offsets, row_ranges
from tasks.sampling.neighborhoods.in_edges import frozen
from tasks.storage.graph_store import ALWAYS, INT32_MAX, GraphStore, id_dtype


@dataclass(frozen=True)
class Relation:
    """Edges of one kind between two node types."""

    name: str
    """`SOURCE__RELATION__TARGET`, as in the manifest's `edge_types`."""
    source: int
    """Number of the source's type in the manifest's `node_types`."""
    target: int
    """Number of the target's type."""
    is_own_key: bool = False
    """Whether the source is what a foreign key of the target names."""


class RelationalEdges:
    """In-edges of every node by relation, and within a relation by time, then by source.

    An edge has a slot at its target: one for each relation that the target's type can be the target of. So the edges
    of a relation that a node has before some moment are the first ones of a slot, and those that it takes do not depend
    on any later edge. An edge's time is the later one of its own and its source's: with a row that is not there yet,
    nothing leads to it. What has no time has always been there (`ALWAYS`).

    A row and its own foreign keys are known together: an edge to a row from what a key of its own names is there as
    soon as the row is, where what is named is no younger. So a row that is asked about as of its own time sees what it
    names, and no other row of that time.

    Memory: 8 bytes a node, 8 a slot, and 8 an edge (16 beyond 2^31 nodes or edges), 4 more where there are
    times (8 where they span more than 2^31).
    """

    def __init__(self, store: GraphStore, relations: Sequence[Relation], left_out: int | None = None) -> None:
        """Sort a graph's edges, in O(E log E) at most, on all threads.

        Args:
            store: `csc_indptr`, `csc_indices`, and where it has them `edge_type`, `edge_time`, `node_type`,
                `node_time`.
            relations: what the numbers of `edge_type` mean.
            left_out: number of a node type whose relations are left out.

        Raises DataError: an edge is of a relation that does not lead to its target's type.
        """
        arrays = {name: store.get(name) for name in ("edge_type", "edge_time", "node_type", "node_time")}
        edge_type, edge_time, node_type, node_time = (None if a is None else frozen(a) for a in arrays.values())
        csc = frozen(store["csc_indptr"]), frozen(store["csc_indices"])
        num_types = len(store.manifest.node_types)
        num_nodes = len(csc[0]) - 1
        kept = [r for r in range(len(relations)) if left_out not in (relations[r].source, relations[r].target)]
        self.node_types = store.manifest.node_types
        self.relations = tuple(relations[r] for r in kept)
        """The relations that are sampled."""
        self.edge_types = tuple(kept)
        """Their numbers in `edge_type`."""
        self.into: tuple[tuple[int, ...], ...] = tuple(
            tuple(i for i, relation in enumerate(self.relations) if relation.target == t) for t in range(num_types)
        )
        """By node type: places in `relations` of those into it, in the order of a node's slots."""
        self.node_type = np.zeros(num_nodes, np.int16) if node_type is None else node_type
        """int16 (N,)."""
        self.type_sizes = np.bincount(self.node_type, minlength=num_types)
        """int64 (T,): nodes of each type."""
        column_of = np.full(len(relations), -1, np.int64)
        for columns in self.into:
            column_of[[kept[i] for i in columns]] = np.arange(len(columns))
        self.slot_start = offsets(np.array([len(columns) for columns in self.into], np.int64)[self.node_type])
        """int64 (N + 1,): each node's first slot."""
        by_type = edge_type, column_of, self.slot_start
        self.indptr = self._count(csc[0], by_type, relations)
        """int64 (S + 1,): each slot's first edge."""
        has_times = edge_time is not None or node_time is not None
        self.clock = Clock.spanning(edge_time, node_time) if has_times else None
        """How times are kept; None where nothing has a time."""
        own_keys = np.array([relation.is_own_key for relation in relations], np.bool_)
        size = int(self.indptr[-1])
        self.id_type = csc[1].dtype
        """Dtype of node ids."""
        self.entries = np.empty((size, 2), id_dtype(max(num_nodes, len(csc[1]))))
        """(E, 2): source and CSC position of each edge; side by side, for they are read together from random places."""
        clock = self.clock or Clock(0, 0, np.int64)
        self.times = np.empty(size, clock.dtype) if has_times else None
        """(E,), as the clock keeps them, ascending within a slot; None where nothing has a time."""
        ranges = _node_ranges(csc[0])
        given = *csc, edge_type, edge_time, node_time, own_keys, column_of, self.slot_start, self.indptr
        filled = self.entries, self.times, clock.origin, clock.least
        run_each(lambda i: fill_slots(*ranges[i], *given, *filled), len(ranges))

    def _count(
        self, csc_indptr: Array, by_type: tuple[Array | None, Array, Array], relations: Sequence[Relation]
    ) -> Array:
        """Return the slots' indptr. Raises DataError."""
        counts = np.zeros(int(self.slot_start[-1]), np.int64)
        strays = np.full(1, -1, np.int64)
        ranges = _node_ranges(csc_indptr)
        run_each(lambda i: count_edges(*ranges[i], csc_indptr, *by_type, counts, strays), len(ranges))
        if strays[0] >= 0:
            edge_type = by_type[0]
            name = relations[0 if edge_type is None else int(edge_type[strays[0]])].name
            node = int(np.searchsorted(csc_indptr, strays[0], side="right")) - 1
            kind = self.node_types[int(self.node_type[node])]
            raise DataError(
                f"an edge of relation {name} leads to node {node}, which is of type {kind}; relational sampling needs "
                "relations between two node types each (with preprocess.self_loops=add, take remove)"
            )
        return offsets(counts)


def _node_ranges(csc_indptr: Array) -> list[tuple[int, int]]:
    return row_ranges(csc_indptr, CHUNKS_A_THREAD * num_threads())


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
    first, last, csc_indptr, csc_indices, edge_type, edge_time, node_time, own_keys, column_of, slot_start, indptr,
    entries, times, origin, least,
):  # fmt: skip
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


_GROUP = 32
"""Slots that are searched in step: what each reads next is asked for while the others are at it."""


@dataclass(frozen=True)
class Clock:
    """How times are kept: in 32 bits as long as they span no more, which halves what a search reads.

    A kept time is the time less `origin`, and at least `least`, which is what ALWAYS becomes.
    """

    origin: int
    least: int
    dtype: type[np.signedinteger[Any]]

    @classmethod
    def spanning(cls, *times: Array | None) -> Clock:
        """Return the clock for some arrays of times, int64."""
        ranges = [time_range(some) for some in times if some is not None]
        first, last = min(low for low, _ in ranges), max(high for _, high in ranges)
        if last - first < INT32_MAX:  # also where nothing has a time: then it is negative
            return cls(min(first, last), -1, np.int32)
        return cls(0, ALWAYS, np.int64)

    def cuts(self, cuts: Array) -> Array:
        """Return cuts int64 (C,) as they are compared with kept times."""
        if self.dtype is np.int64:
            return cuts
        # Also before the first time, what was always there is seen.
        last = np.int64(self.origin) + INT32_MAX
        return (np.clip(cuts, self.origin, last) - self.origin).astype(np.int32)


@njit(cache=True, nogil=True)
def time_range(times):  # type: ignore[no-untyped-def]
    """Return the least and the largest time that is not ALWAYS; 2^62 and -2^62 where there is none."""
    low, high = np.int64(-ALWAYS), np.int64(ALWAYS)
    for time in times:
        low = min(low, time if time > ALWAYS else low)
        high = max(high, time)
    return low, high


@njit(cache=True, nogil=True)
def cut_slots(times, cut_numbers, cuts, width, low, size):  # type: ignore[no-untyped-def]
    """Lower size int64 (n * width,) to the edges whose time is below the row's cut.

    Args:
        times: int32 or int64 (E,), ascending within a slot.
        cut_numbers: int32 (n,), the rows' cuts; None: all have cuts[0].
        cuts: (C,), of the same dtype.
        width: slots a row.
        low: int64 (n * width,), each slot's first edge.
        size: how many edges it has.
    """
    n, rows = len(low) // width, max(1, _GROUP // width)
    begins, slot_cuts = np.empty(rows * width, np.int64), np.empty(rows * width, cuts.dtype)
    active = np.empty(rows * width, np.int64)
    for row in range(0, n, rows):
        first, last = row * width, min(row + rows, n) * width
        at, num_active = first, np.int64(0)
        for i in range(row, min(row + rows, n)):
            cut = cuts[0] if cut_numbers is None else cuts[cut_numbers[i]]
            for _ in range(width):
                # From here on size counts the edges that are in question, and begins is the first of them.
                begins[at - first], slot_cuts[at - first] = low[at], cut
                active[num_active] = at
                num_active += int(size[at] > 0)
                prefetch_item(times, low[at] + (size[at] >> 1))
                at += 1
        while num_active:
            left = np.int64(0)
            for a in range(num_active):
                at = active[a]
                half = size[at] >> 1
                earlier = times[begins[at - first] + half] < slot_cuts[at - first]
                begins[at - first] += half + 1 if earlier else 0
                size[at] = size[at] - half - 1 if earlier else half
                prefetch_item(times, begins[at - first] + (size[at] >> 1))
                active[left] = at
                left += int(size[at] > 0)
            num_active = left
        for at in range(first, last):
            size[at] = begins[at - first] - low[at]
