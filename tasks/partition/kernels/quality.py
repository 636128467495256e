"""How good a partition is: which edges it cuts."""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.partition.base import WeightedCsr


@njit(cache=True, nogil=True)
def weighted_cut(graph: WeightedCsr, part: Array) -> int:
    """Return the weight of entries whose ends lie in two parts (each edge of an undirected graph counts twice)."""
    indptr, indices, edge_weight = graph
    cut, last = 0, len(indices) - 1
    weighted = len(edge_weight) > 0
    for v in range(len(part)):
        for e in range(indptr[v], indptr[v + 1]):
            prefetch_item(part, np.int64(indices[min(e + AHEAD, last)]))
            if part[indices[e]] != part[v]:
                cut += edge_weight[e] if weighted else 1
    return cut


def count_cut(indptr: Array, indices: Array, part: Array) -> int:
    """Return how many entries of the adjacency join two parts."""
    return int(weighted_cut(WeightedCsr(indptr, indices, np.empty(0, np.int32)), part))


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
