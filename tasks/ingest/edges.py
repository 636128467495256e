"""Check edges as they stream by: ids in range, self-loops and duplicates counted, weights that are none refused.

A walk goes along an edge, or an edge is drawn, in proportion to its weight, so there is no such thing as one below 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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
        if len(src) and any(ids.min() < 0 or ids.max() >= limit for ids, limit, _ in sides):
            outside = np.stack([(ids < 0) | (ids >= limit) for ids, limit, _ in sides], axis=1)
            row, side = np.argwhere(outside)[0].tolist()
            ids, limit, column = sides[side]
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


ALL_ZERO = "all weights are 0, so that no edge would count; leave the weights out (then all edges count alike)"
_BELOW = "weights are 0 or more; where the sign means something, give them as a feature (tables: edges.features)"
_VANISHES = "is not 0, and is in float32, in which weights are kept; scale the weights up, or write 0"


def weight_mistakes(values: Array) -> Iterator[tuple[Array, str, str]]:
    """Yield of finite weights (n,) which are wrong, bool (n,), what all of these are, and what to say of one."""
    below = values < 0
    if below.any():
        yield below, "the weight is below 0", f"is below 0: {_BELOW}"
    with np.errstate(under="ignore", over="ignore"):
        vanishes = (values > 0) & (values.astype(np.float32) == 0)
    if vanishes.any():
        yield vanishes, "the weight is 0 in float32", _VANISHES


def refuse_weights(values: Array, path: object, place: Callable[[int], tuple[int, object]]) -> None:
    """Raise DataError where finite weights (n,) are none, or beyond float32; `place`: row and column of one of them."""
    large = values > np.finfo(np.float32).max
    beyond = [(large, "", "is more than float32 can hold; scale the weights down")] if large.any() else []
    for wrong, _, words in (*weight_mistakes(values), *beyond):
        at = int(np.flatnonzero(wrong)[0])
        count = int(np.count_nonzero(wrong))
        more = f" ({count:,} such weights)" if count > 1 else ""
        row, column = place(at)
        raise DataError(f"the weight {values[at]:g} {words}{more}", path=path, row=row, column=column)


class WeightCheck:
    """Running check of a column of weights; the first mistake ends it."""

    def __init__(self, path: object, column: object = 0) -> None:
        self.path, self.column = path, column
        self._rows, self._largest = 0, 0.0

    def add(self, values: Array) -> Array:
        """Return finite weights (n,) as float32. Raises DataError naming the row of one that is none."""
        refuse_weights(values, self.path, lambda at: (self._rows + at, self.column))
        self._rows += len(values)
        self._largest = max(self._largest, float(values.max(initial=0)))
        return values.astype(np.float32)

    def finish(self) -> None:
        """All were added: raise DataError where none is above 0."""
        if self._rows and not self._largest:
            raise DataError(ALL_ZERO, path=self.path, column=self.column)
