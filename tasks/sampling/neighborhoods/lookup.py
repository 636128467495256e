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
