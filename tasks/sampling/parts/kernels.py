"""Loops over the nodes of batches whose graph lies in parts: who holds a node, and what came from whom.

`bounds` int64 (world_size + 1,): rank r is asked for nodes bounds[r] to bounds[r + 1] - 1. The nodes first to end - 1
are read here. A message holds what all ranks are asked, rank by rank, and for each rank list by list.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item


@njit(inline="always")
def owner_of(node, bounds):  # type: ignore[no-untyped-def]
    """Return the rank that is asked for a node."""
    low, high = 0, len(bounds) - 1
    while high - low > 1:
        middle = (low + high) // 2
        if bounds[middle] <= node:
            low = middle
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def count_owners(nodes, first, end, bounds, counts):  # type: ignore[no-untyped-def]
    """Add to counts (world_size,) how many of `nodes` each rank is asked for; return how many are read here."""
    own = 0
    for v in nodes:
        own += first <= v < end
    before = np.int64(0)  # nodes of the ranks so far
    for rank in range(len(bounds) - 1):  # a pass a rank, in vectors, takes less than finding each node's owner
        below = np.int64(0)
        for v in nodes:
            below += v < bounds[rank + 1]
        if not first <= bounds[rank] < end:
            counts[rank] += below - before
        before = below
    return own


@njit(cache=True, nogil=True)
def deal_out(nodes, first, end, bounds, cursor, own, message, place):  # type: ignore[no-untyped-def]
    """Copy nodes read here into `own`, the others into `message` from cursor[owner] on, which moves on.

    place (n,) says where each went: i >= 0 is own[i], i < 0 is message[~i].
    """
    mine = 0
    for i in range(len(nodes)):
        v = nodes[i]
        if first <= v < end:
            own[mine] = v
            place[i] = mine
            mine += 1
        else:
            rank = owner_of(v, bounds)
            at = cursor[rank]
            cursor[rank] = at + 1
            message[at] = v
            place[i] = ~at


@njit(cache=True, nogil=True)
def merge_edges(  # type: ignore[no-untyped-def]
    place, own_indptr, own_degree, own_ids, own_positions, told, told_indptr, told_ids, indptr, degree, ids, edges
):
    """Put the edges of a layer's destinations in order, those drawn here and those that other ranks drew.

    Args:
        place: (n,), see `deal_out`.
        own_indptr, own_degree, own_ids, own_positions: what was drawn here.
        told: int32 (m, 2): edges taken and in-degree of each node of the message.
        told_indptr: int64 (m + 1,): running sum of the edges.
        told_ids: their sources.
        indptr: int64 (n + 1,), running sum, filled in already.
        degree, ids: filled, float32 (n,) and (E,).
        edges: int64 (E,), filled with the position of an edge drawn here, or ~(place in told_ids); or None.
    """
    for i in range(len(place)):
        at, to = place[i], indptr[i]
        if i + AHEAD < len(place):
            ahead = place[i + AHEAD]
            if ahead < 0:
                prefetch_item(told_indptr, np.int64(~ahead))
        if at >= 0:
            start = own_indptr[at]
            degree[i] = own_degree[at]
            for e in range(indptr[i + 1] - to):
                ids[to + e] = own_ids[start + e]
            if edges is not None:
                for e in range(indptr[i + 1] - to):
                    edges[to + e] = own_positions[start + e]
        else:
            start = told_indptr[~at]
            degree[i] = told[~at, 1]
            for e in range(indptr[i + 1] - to):
                ids[to + e] = told_ids[start + e]
            if edges is not None:
                for e in range(indptr[i + 1] - to):
                    edges[to + e] = ~(start + e)


@njit(cache=True, nogil=True)
def add_up(place, own_indptr, told, indptr):  # type: ignore[no-untyped-def]
    """Fill indptr int64 (n + 1,) with the running number of edges of each destination; see `merge_edges`."""
    indptr[0] = 0
    for i in range(len(place)):
        at = place[i]
        indptr[i + 1] = indptr[i] + (own_indptr[at + 1] - own_indptr[at] if at >= 0 else np.int64(told[~at, 0]))


@njit(cache=True, nogil=True)
def locate(ids, first, end, table, base, nodes, num_nodes, rows):  # type: ignore[no-untyped-def]
    """Fill rows (m,) with v - first for nodes read here and ~number for others; return how many numbers there are.

    Numbers are those of `relabel`, whose arguments the other ones are; `table` has an entry more than there are nodes.
    Nothing branches: where a node is, and whether it is new, is as good as random.
    """
    count = np.int32(num_nodes)
    base = np.int32(base)
    unused = np.int64(len(table) - 1)
    span = np.uint64(end - first)
    for i in range(len(ids)):
        if i + AHEAD < len(ids):
            prefetch_item(table, np.int64(ids[i + AHEAD]))
        v = np.int64(ids[i])
        own = np.uint64(v - first) < span
        at = unused if own else v
        number = np.int32(table[at] - base)
        new = number < 0
        number = count if new else number
        table[at] = np.int32(base + number)
        nodes[count] = v
        count = np.int32(count + np.int32(new & (not own)))
        rows[i] = v - first if own else ~np.int64(number)
    return np.int64(count)


@njit(cache=True, nogil=True)
def follow(rows, kept, place):  # type: ignore[no-untyped-def]
    """Replace each row ~number, number >= kept, by ~(kept + place[number - kept])."""
    for i in range(len(rows)):
        number = ~rows[i]
        if number >= kept:
            rows[i] = ~(kept + place[number - kept])


@njit(cache=True, nogil=True)
def take_numbers(table, extra, rows, out):  # type: ignore[no-untyped-def]
    """Fill out (n,) with table[r] for rows r >= 0 and extra[~r] for others, without a branch; neither is empty."""
    for i in range(len(rows)):
        if i + AHEAD < len(rows):
            ahead = np.int64(rows[i + AHEAD])
            prefetch_item(table, max(ahead, 0))
            prefetch_item(extra, max(~ahead, 0))
        r = np.int64(rows[i])
        here, there = table[max(r, 0)], extra[max(~r, 0)]
        out[i] = here if r >= 0 else there


@njit(cache=True, nogil=True)
def take_either(table, extra, rows, out):  # type: ignore[no-untyped-def]
    """Fill out (n, D) with table[r] for rows r >= 0 and extra[~r] for others, all of one dtype."""
    for i in range(len(rows)):
        r = rows[i]
        if r >= 0:
            for d in range(out.shape[1]):
                out[i, d] = table[r, d]
        else:
            for d in range(out.shape[1]):
                out[i, d] = extra[~r, d]


def as_rows(array: NDArray[Any]) -> NDArray[Any]:
    """Return an array (n, ...) as a matrix (n, D)."""
    return array.reshape(len(array), math.prod(array.shape[1:]))
