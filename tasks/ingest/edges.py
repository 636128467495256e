"""Check edges as they stream by: ids in range, self-loops and duplicates counted."""

from __future__ import annotations

import numpy as np
from numba import njit

from configs.errors import DataError
from tasks.arrays import Array

# Exact counting remembers every edge: up to so many (48 MB, a tenth of a second), beyond that preprocess counts when it
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
def _edge_keys(src, dst, num_dst):  # type: ignore[no-untyped-def]
    """Return a number for each (source, target), uint64."""
    keys = np.empty(len(src), np.uint64)
    for i in range(len(src)):
        keys[i] = np.uint64(src[i]) * np.uint64(num_dst) + np.uint64(dst[i])
    return keys


@njit(cache=True, nogil=True)
def _count_repeated(table, keys):  # type: ignore[no-untyped-def]
    """Put keys into an open-addressing table (size a power of two, all `_EMPTY`); return how many were there before."""
    mask = np.uint64(len(table) - 1)
    repeated = 0
    for key in keys:
        slot = (key * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & mask
        while table[slot] != _EMPTY and table[slot] != key:
            slot = (slot + np.uint64(1)) & mask
        repeated += table[slot] == key
        table[slot] = key
    return repeated


class EdgeCheck:
    """Running check of one edge type.

    Memory: 8 bytes an edge for up to `MAX_COUNTED_EDGES`, nothing beyond; nothing is counted before it is asked for.
    """

    def __init__(self, num_src: int, num_dst: int, *, same_type: bool = True) -> None:
        """`same_type`: source and target are ids of one node type, so that equal ids are a self-loop."""
        self.num_src, self.num_dst, self.same_type = num_src, num_dst, same_type
        self.num_edges = 0
        self.num_self_loops = 0
        self._keys: list[Array] | None = []
        self._num_duplicates: int | None = None

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
        self._num_duplicates = None
        if self.num_edges > MAX_COUNTED_EDGES:
            self._keys = None
        if self._keys is not None:
            self._keys.append(_edge_keys(src, dst, self.num_dst))

    @property
    def num_duplicates(self) -> int:
        """Exact repetitions of (source, target); -1 where there are too many edges to count them here."""
        if self._keys is None:
            return -1
        if self._num_duplicates is None:
            table = np.full(1 << (2 * self.num_edges + 1).bit_length(), _EMPTY)
            self._num_duplicates = sum(int(_count_repeated(table, keys)) for keys in self._keys)
        return self._num_duplicates
