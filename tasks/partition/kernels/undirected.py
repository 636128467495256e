"""The graph as partitioners want it: undirected, simple."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.partition.base import Csr
from tasks.storage.graph_store import GraphStore, create_array


def undirected(store: GraphStore, scratch: Path) -> Csr:
    """Return the graph with every edge in both rows, each neighbour once, without self-loops.

    A symmetric, simple graph is returned as it stands; any other is written into `scratch` as memory maps, one pass to
    count and one to fill.
    """
    indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    if store.manifest.symmetric and is_simple(indptr, indices):
        return Csr(indptr, indices)
    out_indptr, out_indices = np.asarray(store["csr_indptr"]), np.asarray(store["csr_indices"])
    union_indptr = np.zeros(len(indptr), np.int64)
    unite_rows(indptr, indices, out_indptr, out_indices, union_indptr, np.empty(0, indices.dtype))
    np.cumsum(union_indptr, out=union_indptr)
    total = int(union_indptr[-1])
    if total == 0:
        return Csr(union_indptr, np.empty(0, indices.dtype))
    union = create_array(scratch / "undirected.npy", (total,), indices.dtype)
    unite_rows(indptr, indices, out_indptr, out_indices, union_indptr, np.asarray(union))
    return Csr(union_indptr, np.asarray(union))


@njit(cache=True, nogil=True)
def is_simple(indptr: Array, indices: Array) -> bool:
    """Whether no row names its own node or a neighbour twice (rows ascend)."""
    for v in range(len(indptr) - 1):
        last = -1
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if u in (v, last):
                return False
            last = u
    return True


@njit(cache=True, nogil=True)
def unite_rows(
    in_indptr: Array, in_indices: Array, out_indptr: Array, out_indices: Array, indptr: Array, indices: Array
) -> None:
    """Write the distinct neighbours of each node v, itself excluded, from indices[indptr[v]] on. Rows ascend.

    Where `indices` is empty, their number is written to indptr[v + 1] instead.
    """
    for v in range(len(in_indptr) - 1):
        a, a_end = in_indptr[v], in_indptr[v + 1]
        b, b_end = out_indptr[v], out_indptr[v + 1]
        last = -1
        count = 0
        while a < a_end or b < b_end:
            if b >= b_end or (a < a_end and in_indices[a] <= out_indices[b]):
                u = in_indices[a]
                a += 1
            else:
                u = out_indices[b]
                b += 1
            if u != last and u != v:
                if len(indices) > 0:
                    indices[indptr[v] + count] = u
                count += 1
            last = u
        if len(indices) == 0:
            indptr[v + 1] = count
