"""Kernels that turn sorted shards into compressed rows: counting sort, merging of parallel edges.

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
from tasks.preprocess.edges.shard_kernels import Runs


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
def count_merged(first: int, last: int, indptr: Array, edges: Unmerged, degree: Array) -> None:
    """Set `degree` of rows `first` to `last`: edges after merging, plus one where self-loops are added."""
    for v in range(first, last):
        start, end = indptr[v], indptr[v + 1]
        d = end - start
        if edges.merge:
            for i in range(start + 1, end):
                if _repeats(edges, i):
                    d -= 1
        degree[v] = d + (1 if edges.add_loops else 0)


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


def over_rows(kernel: Callable[..., None], threads: int, indptr: Array, *args: Any) -> None:
    """Call `kernel(first, last, indptr, *args)` on ranges of rows, in threads."""
    ranges = row_ranges(indptr, threads * 4 if threads > 1 else 1)
    if threads <= 1 or len(ranges) <= 1:
        for first, last in ranges:
            kernel(first, last, indptr, *args)
        return
    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(kernel, first, last, indptr, *args) for first, last in ranges]:
            future.result()
