"""Check edges as they stream by: ids in range, self-loops and duplicates counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.errors import DataError

Array = NDArray[Any]

# Exact counting remembers every edge: up to so many (32 MB, a tenth of a second), beyond that preprocess counts when it
# sorts them.
MAX_COUNTED_EDGES = 1 << 21
_EMPTY = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(cache=True, nogil=True)
def _scan_edges(src, dst, num_src, num_dst, same_type):  # type: ignore[no-untyped-def]
    """Return the first row out of range (-1: none), its column (0 or 1), and the number of self-loops."""
    loops = 0
    for i in range(len(src)):
        u, v = src[i], dst[i]
        if u < 0 or u >= num_src:
            return i, 0, loops
        if v < 0 or v >= num_dst:
            return i, 1, loops
        if same_type and u == v:
            loops += 1
    return -1, 0, loops


@njit(cache=True, nogil=True)
def _insert_edges(table, src, dst, num_dst):  # type: ignore[no-untyped-def]
    """Insert keys into an open-addressing table (size a power of two); return how many were there before."""
    mask = np.uint64(len(table) - 1)
    duplicates = 0
    for i in range(len(src)):
        key = np.uint64(src[i]) * np.uint64(num_dst) + np.uint64(dst[i])
        duplicates += _insert(table, key, mask)
    return duplicates


@njit(cache=True, nogil=True)
def _insert(table, key, mask):  # type: ignore[no-untyped-def]
    slot = (key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & mask
    while table[slot] != _EMPTY:
        if table[slot] == key:
            return 1
        slot = (slot + np.uint64(1)) & mask
    table[slot] = key
    return 0


@njit(cache=True, nogil=True)
def _rehash(old, new):  # type: ignore[no-untyped-def]
    mask = np.uint64(len(new) - 1)
    for i in range(len(old)):
        if old[i] != _EMPTY:
            _insert(new, old[i], mask)


class EdgeCheck:
    """Running check of one edge type.

    Memory: 16 bytes an edge at most while duplicates are counted (up to `MAX_COUNTED_EDGES`), nothing beyond.
    """

    def __init__(self, num_src: int, num_dst: int, *, same_type: bool = True, expected: int = 0) -> None:
        """`same_type`: source and target are ids of one node type, so that equal ids are a self-loop.
        `expected`: how many edges will come, where that is known."""
        self.num_src, self.num_dst, self.same_type = num_src, num_dst, same_type
        self.num_edges = 0
        self.num_self_loops = 0
        self.num_duplicates = 0
        self._table: Array | None = np.full(1 << 12, _EMPTY)
        if expected > MAX_COUNTED_EDGES:
            self._table, self.num_duplicates = None, -1

    def add(self, src: Array, dst: Array, path: object = None, columns: tuple[object, object] = (0, 1)) -> None:
        """Check a chunk of edges, (m,) ids each. Raises DataError naming file, row and column of a wrong id."""
        row, side, loops = _scan_edges(src, dst, self.num_src, self.num_dst, self.same_type)
        if row >= 0:
            value, limit = int((src, dst)[side][row]), (self.num_src, self.num_dst)[side]
            raise DataError(
                f"node id {value} is not in 0..{limit - 1}; there are {limit:,} nodes",
                path=path,
                row=self.num_edges + row,
                column=columns[side],
            )
        self.num_edges += len(src)
        self.num_self_loops += loops
        self._count(src, dst)

    def _count(self, src: Array, dst: Array) -> None:
        if self._table is None:
            return
        if self.num_edges > MAX_COUNTED_EDGES:
            self._table, self.num_duplicates = None, -1
            return
        size = len(self._table)
        while size < 2 * self.num_edges:
            size *= 2
        if size > len(self._table):
            larger = np.full(size, _EMPTY)
            _rehash(self._table, larger)
            self._table = larger
        self.num_duplicates += _insert_edges(self._table, src, dst, self.num_dst)


def total_duplicates(checks: list[EdgeCheck]) -> int:
    """Duplicates of all edge types; -1 unless all were counted."""
    counts = [check.num_duplicates for check in checks]
    return -1 if -1 in counts else sum(counts)


def check_ids(ids: Array, limit: int, what: str, path: Path | str) -> Array:
    """Return ids as int64 if all lie in 0..limit - 1. Raises DataError naming the row."""
    wrong = np.flatnonzero((ids < 0) | (ids >= limit))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(f"{what} id {int(ids[row])} is not in 0..{limit - 1}", path=path, row=row)
    return ids.astype(np.int64, copy=False)
