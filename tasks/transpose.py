"""Edges listed by their other end: compressed columns to compressed rows, or back."""

from __future__ import annotations

from numba import njit

from tasks.arrays import Array


@njit(cache=True, nogil=True)
def transpose(indptr: Array, indices: Array, cursor: Array, out_indices: Array, out_eids: Array) -> None:
    """List the edges by the other end, ascending: counting sort of CSC, int64 (N + 1,) and id (E,), into CSR or back.

    `cursor`, int64 (N,), first place of each row of the result, moves on. `out_indices`, id (E,), and `out_eids`, int64
    (E,), positions in `indices`, are filled where they are not empty.
    """
    want_indices = len(out_indices) > 0
    want_eids = len(out_eids) > 0
    for v in range(len(indptr) - 1):
        for i in range(indptr[v], indptr[v + 1]):
            u = indices[i]
            place = cursor[u]
            cursor[u] = place + 1
            if want_indices:
                out_indices[place] = v
            if want_eids:
                out_eids[place] = i
