"""How good a partition is: cut edges, balance, halos."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array


@njit(cache=True, nogil=True)
def count_cut(indptr: Array, indices: Array, part: Array) -> int:
    """Return how many entries of the adjacency join two parts."""
    cut, last = 0, len(indices) - 1
    for v in range(len(indptr) - 1):
        p = part[v]
        for e in range(indptr[v], indptr[v + 1]):
            prefetch_item(part, np.int64(indices[min(e + AHEAD, last)]))
            if part[indices[e]] != p:
                cut += 1
    return cut


@njit(cache=True, nogil=True)
def cut_matrix(indptr: Array, indices: Array, part: Array, num_parts: int) -> Array:
    """Return int64 (num_parts, num_parts): edges from part (row: source) to part (column: target) of a CSC."""
    matrix, last = np.zeros((num_parts, num_parts), np.int64), len(indices) - 1
    for v in range(len(indptr) - 1):
        p = part[v]
        for e in range(indptr[v], indptr[v + 1]):
            prefetch_item(part, np.int64(indices[min(e + AHEAD, last)]))
            matrix[part[indices[e]], p] += 1
    return matrix


def halos(indptr: Array, indices: Array, part_offsets: Array, hops: int) -> Iterator[Array]:
    """Yield the halo of each part of a reordered graph.

    The halo holds the nodes outside of the part from which the part is reached within `hops` edges: what a worker that
    owns the part needs to see to compute `hops` layers. Ascending, of the dtype of `indices`.
    """
    num_nodes = len(indptr) - 1
    seen = np.full(num_nodes, -1, np.int32)
    queue = np.empty(num_nodes, indices.dtype)
    for p in range(len(part_offsets) - 1):
        found = _halo(indptr, indices, part_offsets[p], part_offsets[p + 1], hops, p, seen, queue)
        yield np.sort(queue[:found])


@njit(cache=True, nogil=True)
def _halo(indptr: Array, indices: Array, first: int, end: int, hops: int, stamp: int, seen: Array, queue: Array) -> int:
    """Breadth-first over in-edges from nodes first..end - 1; the halo is left in queue[:returned]."""
    found = level_start = 0
    last = len(indices) - 1
    for hop in range(hops):
        level_end = found
        for q in range(first, end) if hop == 0 else range(level_start, level_end):
            v = q if hop == 0 else queue[q]
            for e in range(indptr[v], indptr[v + 1]):
                prefetch_item(seen, np.int64(indices[min(e + AHEAD, last)]))
                u = indices[e]
                if (u < first or u >= end) and seen[u] != stamp:
                    seen[u] = stamp
                    queue[found] = u
                    found += 1
        level_start = level_end
    return found
