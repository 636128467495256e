"""Check edges as they stream by: ids in range, self-loops and duplicates counted."""

from __future__ import annotations

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array

# Exact counting remembers every edge: up to so many (a tenth of a second), beyond that preprocess counts when it sorts.
MAX_COUNTED_EDGES = 1 << 21


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
        sides = ((src, self.num_src, columns[0]), (dst, self.num_dst, columns[1]))
        for ids, limit, column in sides if len(src) else ():
            if ids.min() < 0 or ids.max() >= limit:
                row = int(np.flatnonzero((ids < 0) | (ids >= limit))[0])
                raise DataError(
                    f"node id {ids[row]} is not in 0..{limit - 1}; there are {limit:,} nodes",
                    path=path,
                    row=self.num_edges + row,
                    column=column,
                )
        self.num_edges += len(src)
        self.num_self_loops += int(np.count_nonzero(src == dst)) if self.same_type else 0
        self._num_duplicates = None
        if self.num_edges > MAX_COUNTED_EDGES:
            self._keys = None
        if self._keys is not None:
            self._keys.append(src.astype(np.uint64) * np.uint64(self.num_dst) + dst.astype(np.uint64))

    @property
    def num_duplicates(self) -> int:
        """Exact repetitions of (source, target); -1 where there are too many edges to count them here."""
        if self._keys is None:
            return -1
        if self._num_duplicates is None:
            keys = np.sort(np.concatenate([np.empty(0, np.uint64), *self._keys]))
            self._num_duplicates = int(np.count_nonzero(keys[1:] == keys[:-1]))
        return self._num_duplicates
