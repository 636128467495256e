"""What is done to one shard: pack edges into keys, sort them, compress them into runs. One thread."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from tasks.arrays import Array

_INSERTION_MAX = 48  # rows up to this length are sorted by insertion: they are short or consist of few sorted runs


class Runs(NamedTuple):
    """Edges of a shard, sorted by destination, then source: a run of sources for each destination."""

    rows: Array
    """id (R,), destinations that occur, ascending."""
    counts: Array
    """int64 (R,), edges of each."""
    cols: Array
    """id (E,), sources, ascending within a run."""
    table_rows: Array
    """int (E,), row of the shard's table that each edge comes from; empty where nobody needs it."""

    def only(self, stays: Array) -> Runs:
        """Return the edges that stay, bool (E,), and their runs."""
        starts = np.cumsum(self.counts) - self.counts
        counts = np.add.reduceat(stays, starts, dtype=np.int64) if len(starts) else self.counts
        table_rows = self.table_rows[stays] if len(self.table_rows) else self.table_rows
        return Runs(self.rows[counts > 0], counts[counts > 0], self.cols[stays], table_rows)


class Packing(NamedTuple):
    """How a shard's edges become keys."""

    src_offset: int
    """First id in the graph of the sources' node type."""
    dst_offset: int
    bits: int
    """Of an id."""
    symmetrize: bool
    """Pack the reverse of each edge, too; a self-loop is its own."""
    drop_loops: bool


@njit(cache=True, nogil=True)
def expand_edges(
    src: Array, dst: Array, packing: Packing, keys: Array, count: int, rows: Array, first_row: int
) -> tuple[int, int]:
    """Pack each edge, and its reverse, as `dst << bits | src`; return how many keys are set now, and self-loops met.

    An edge and its reverse are neighbours in the result. So a stable sort keeps parallel edges in the order of the
    table in both directions, and merging them gives both directions the same data. `src` and `dst`, id (E,), are
    numbered within their node types. `keys`, uint64 with room for all, holds `count` keys; `rows`, int or empty, gets
    the row of the table that each comes from, `first_row` for the first.
    """
    src_offset, dst_offset, bits, symmetrize, drop_loops = packing
    loops = 0
    keep_rows = len(rows) > 0
    shift = np.uint64(bits)
    for e in range(len(src)):
        s = np.uint64(src[e] + src_offset)
        d = np.uint64(dst[e] + dst_offset)
        if s == d:
            loops += 1
            if drop_loops:
                continue
        keys[count] = (d << shift) | s
        if keep_rows:
            rows[count] = first_row + e
        count += 1
        if symmetrize and s != d:
            keys[count] = (s << shift) | d
            if keep_rows:
                rows[count] = first_row + e
            count += 1
    return count, loops


def sort_and_compress(keys: Array, table_rows: Array, bits: int, merge: bool) -> Runs:
    """Sort packed edges by row, then column, stably, and split them into runs.

    NumPy's sort is not stable; so where table rows follow, it sorts destinations with the edges' places behind them,
    and each row's columns are sorted by themselves.

    Args:
        keys: uint64 (E,), `row << bits | column`; used up.
        table_rows: (E,), follow; or empty.
        bits: bits of an id.
        merge: leave out repeated keys (no table rows follow).
    """
    assert not (merge and len(table_rows)), "merged edges have no table rows"
    id_type, column_mask = (np.int32 if bits <= 31 else np.int64), np.uint64((1 << bits) - 1)
    if not len(table_rows):
        keys.sort()
        if merge and len(keys):
            keys = keys[np.concatenate([[True], keys[1:] != keys[:-1]])]
        cols = (keys & column_mask).astype(id_type)
        keys >>= np.uint64(bits)
        rows = keys
    else:
        place_bits = len(keys).bit_length()
        assert bits + place_bits <= 64, "a shard holds millions of edges at most"
        cols = (keys & column_mask).astype(id_type)
        keys >>= np.uint64(bits)
        keys <<= np.uint64(place_bits)
        keys |= np.arange(len(keys), dtype=np.uint64)
        keys.sort()
        places = (keys & np.uint64((1 << place_bits) - 1)).astype(np.int64)
        keys >>= np.uint64(place_bits)
        rows, cols, table_rows = keys, cols[places], table_rows[places]
        del places
    first = np.concatenate([np.zeros(min(len(rows), 1), np.int64), np.flatnonzero(rows[1:] != rows[:-1]) + 1])
    if len(table_rows):
        sort_rows(0, len(first), np.append(first, len(rows)), cols, table_rows)
    return Runs(rows[first].astype(id_type), np.diff(first, append=len(rows)), cols, table_rows)


@njit(cache=True, nogil=True)
def sort_rows(first: int, last: int, indptr: Array, indices: Array, eids: Array) -> None:
    """Sort the columns of rows `first` to `last` in place, stably; `eids` (same length, or empty) follow."""
    follow = len(eids) > 0
    for v in range(first, last):
        start, end = indptr[v], indptr[v + 1]
        ascending = True
        for i in range(start + 1, end):
            if indices[i] < indices[i - 1]:
                ascending = False
                break
        if ascending:
            continue
        if end - start <= _INSERTION_MAX:
            for i in range(start + 1, end):
                col = indices[i]
                eid = eids[i] if follow else eids.dtype.type(0)
                k = i - 1
                while k >= start and indices[k] > col:
                    indices[k + 1] = indices[k]
                    if follow:
                        eids[k + 1] = eids[k]
                    k -= 1
                indices[k + 1] = col
                if follow:
                    eids[k + 1] = eid
        elif follow:
            order = np.argsort(indices[start:end], kind="mergesort")
            indices[start:end] = indices[start:end][order]
            eids[start:end] = eids[start:end][order]
        else:
            indices[start:end] = np.sort(indices[start:end])
