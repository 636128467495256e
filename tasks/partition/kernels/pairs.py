"""Kernels that count edges between clusters for some rows at a time, where nobody holds all edges."""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.partition.kernels.range_moves import Rows


@njit(cache=True, nogil=True)
def pack_pairs(rows: Rows, label: Array, num_clusters: int, keys: Array) -> int:
    """Write `c * num_clusters + d` for each entry between two clusters, c that of the row; returns how many.

    label: ids (N,). keys: int64 (m,), with room for all entries of the rows.
    """
    first, indptr, indices = rows
    count, last = 0, len(indices) - 1
    for i in range(len(indptr) - 1):
        c = np.int64(label[first + i])
        for e in range(indptr[i] - indptr[0], indptr[i + 1] - indptr[0]):
            prefetch_item(label, np.int64(indices[min(e + AHEAD, last)]))
            d = label[indices[e]]
            if d != c:
                keys[count] = c * num_clusters + d
                count += 1
    return count


@njit(cache=True, nogil=True)
def add_up(keys: Array, weights: Array) -> int:
    """Merge equal neighbours in sorted keys, int64 (m,), in place, their weights added; returns how many are left."""
    count = 0
    for i in range(len(keys)):
        if count > 0 and keys[count - 1] == keys[i]:
            weights[count - 1] += weights[i]
        else:
            keys[count], weights[count] = keys[i], weights[i]
            count += 1
    return count
