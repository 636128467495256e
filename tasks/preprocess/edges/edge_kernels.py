"""Kernels of edges: pack a shard's edges into keys, sort and compress them; then count, place, merge and emit all rows.

N nodes, E edges. A row is the node whose edges are listed (the destination in CSC), a column the other end. All kernels
release the GIL and run on one thread; `over_rows` spreads them over threads by ranges of rows that hold equally many
edges. (numba's own parallel loops are not used: their threading layers break in forked workers.)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from tasks.arrays import Array, row_ranges

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


class Unmerged(NamedTuple):
    """Sorted rows whose parallel edges are still to be merged, and how; their indptr is given beside them."""

    indices: Array
    """id, ascending within a row."""
    eids: Array
    """int, as long: number of each edge over all tables; empty where edges carry no data."""
    table_starts: Array
    """int64: first number of each edge table, and the end of the last."""
    merge: bool
    """Merge parallel edges of one table."""
    add_loops: bool
    """Put one self-loop into each row (table row -1, weight 1); there must be none before."""


class Merged(NamedTuple):
    """The rows of the graph, to be filled."""

    indptr: Array
    """int64 (N + 1,), set."""
    indices: Array
    eids: Array
    """Empty where edges carry no data."""
    weight: Array
    """float32, or empty: edges have no weights."""


@njit(cache=True, nogil=True)
def place_runs(runs: Runs, base: int, cursor: Array, indices: Array, eids: Array) -> None:
    """Append a shard's rows to the graph's: the scatter of a counting sort, a run of columns at a time.

    `cursor`, int64 (N,), is where the next column of each row goes, and moves on. `indices` is filled, and `eids` with
    base + table_rows (the number of each edge over all tables) unless those are empty.
    """
    rows, counts, cols, table_rows = runs
    place = 0
    for r in range(len(rows)):
        start = cursor[rows[r]]
        for k in range(counts[r]):
            indices[start + k] = cols[place + k]
        if len(table_rows) > 0:
            for k in range(counts[r]):
                eids[start + k] = base + table_rows[place + k]
        place += counts[r]
        cursor[rows[r]] = start + counts[r]


@njit(cache=True, nogil=True)
def _repeats(edges: Unmerged, i: int) -> bool:
    """Whether position i repeats position i - 1: the same column, from the same edge table."""
    indices, eids, starts = edges.indices, edges.eids, edges.table_starts
    if indices[i] != indices[i - 1]:
        return False
    if len(eids) == 0 or len(starts) <= 2:
        return True
    return np.searchsorted(starts, eids[i], side="right") == np.searchsorted(starts, eids[i - 1], side="right")


@njit(cache=True, nogil=True)
def count_merged(first: int, last: int, indptr: Array, edges: Unmerged, degree: Array) -> int:
    """Set `degree` of rows `first` to `last`: edges after merging, plus one where self-loops are added.

    Return how many self-loops are merged with others.
    """
    loops = 0
    for v in range(first, last):
        start, end = indptr[v], indptr[v + 1]
        d = end - start
        if edges.merge:
            for i in range(start + 1, end):
                if _repeats(edges, i):
                    d -= 1
                    loops += edges.indices[i] == v
        degree[v] = d + (1 if edges.add_loops else 0)
    return loops


@njit(cache=True, nogil=True)
def emit_merged(
    first: int, last: int, indptr: Array, edges: Unmerged, raw_weight: Array, mode: int, out: Merged
) -> None:
    """Write rows `first` to `last` merged: columns, the first table row of each edge, and combined weights.

    `raw_weight`, float32, is the weight of each table row; `mode` 0 adds those of merged edges, 1 takes the largest, 2
    the first.
    """
    indices, eids = edges.indices, edges.eids
    follow, weighted = len(out.eids) > 0, len(out.weight) > 0
    for v in range(first, last):
        place = out.indptr[v]
        waiting = edges.add_loops
        total = 0.0
        for i in range(indptr[v], indptr[v + 1]):
            if edges.merge and i > indptr[v] and _repeats(edges, i):
                if weighted:
                    w = raw_weight[eids[i]]
                    if mode == 0:
                        total += w
                    elif mode == 1:
                        total = max(total, w)
                    out.weight[place - 1] = total
                continue
            if waiting and indices[i] > v:
                waiting = False
                place = _emit_loop(v, place, out)
            out.indices[place] = indices[i]
            if follow:
                out.eids[place] = eids[i]
            if weighted:
                total = raw_weight[eids[i]]
                out.weight[place] = total
            place += 1
        if waiting:
            place = _emit_loop(v, place, out)


@njit(cache=True, nogil=True)
def _emit_loop(v: int, place: int, out: Merged) -> int:
    out.indices[place] = v
    if len(out.eids) > 0:
        out.eids[place] = -1
    if len(out.weight) > 0:
        out.weight[place] = 1.0
    return place + 1


@njit(cache=True, nogil=True)
def count_columns(indices: Array, counts: Array) -> None:
    """Add the number of times that each column occurs to `counts` int64 (N,)."""
    for i in range(len(indices)):
        counts[indices[i]] += 1


def over_rows(kernel: Callable[..., Any], threads: int, indptr: Array, *args: Any) -> list[Any]:
    """Call `kernel(first, last, indptr, *args)` on ranges of rows, in threads; return what it returns for each."""
    ranges = row_ranges(indptr, threads * 4 if threads > 1 else 1)
    if threads <= 1 or len(ranges) <= 1:
        return [kernel(first, last, indptr, *args) for first, last in ranges]
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(kernel, first, last, indptr, *args) for first, last in ranges]
        return [future.result() for future in futures]
