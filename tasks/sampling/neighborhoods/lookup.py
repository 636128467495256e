"""Finding edges in CSC arrays, whose sources ascend within a node."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.storage.graph_store import Array


def frozen(array: Array) -> Array:
    """Return a read-only view without the memory map's class, so that numba compiles a kernel once for all stores."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


@njit(cache=True, nogil=True)
def find_edge(indptr, indices, source, target):  # type: ignore[no-untyped-def]
    """Return the CSC position of source -> target, or -1 (binary search)."""
    low, high = indptr[target], indptr[target + 1]
    stop = high
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < source:
            low = middle + 1
        else:
            high = middle
    return low if low < stop and indices[low] == source else -1


@njit(cache=True, nogil=True)
def mark_edges(indptr, indices, sources, targets, marks):  # type: ignore[no-untyped-def]
    """Set marks (E,) at all edges between pairs, parallel ones too, in the direction that is given."""
    for i in range(len(sources)):
        at = find_edge(indptr, indices, sources[i], targets[i])
        while at >= 0 and at < indptr[targets[i] + 1] and indices[at] == sources[i] and not marks[at]:
            marks[at] = True
            at += 1


def without_pairs(indptr: Array, indices: Array, pairs: Array) -> tuple[Array, Array, Array]:
    """Return a CSC without the edges between pairs, int64 (2, n), both ways and all that are parallel.

    Sources ascend within a node. Returns new indptr and indices, and the positions that are left out: int64 (m,),
    ascending.
    """
    indptr, indices = frozen(indptr), frozen(indices)
    sources, targets = np.concatenate([pairs[0], pairs[1]]), np.concatenate([pairs[1], pairs[0]])
    marks = np.zeros(len(indices), np.bool_)
    mark_edges(indptr, indices, sources, targets, marks)
    left_out = np.flatnonzero(marks)
    new_indptr, new_indices = np.empty_like(indptr), np.empty(len(indices) - len(left_out), indices.dtype)
    skip_edges(indptr, indices, left_out, new_indptr, new_indices)
    return new_indptr, new_indices, left_out


@njit(cache=True, nogil=True)
def skip_edges(indptr, indices, left_out, new_indptr, new_indices):  # type: ignore[no-untyped-def]
    """Copy a CSC but for the positions `left_out` (m,), ascending."""
    start = 0
    for i in range(len(left_out) + 1):
        stop = left_out[i] if i < len(left_out) else len(indices)
        new_indices[start - i : stop - i] = indices[start:stop]
        start = stop + 1
    i = 0
    for v in range(len(indptr)):
        while i < len(left_out) and left_out[i] < indptr[v]:
            i += 1
        new_indptr[v] = indptr[v] - i
