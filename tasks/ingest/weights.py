"""Weights of edges: what is refused of them, whatever they were read from.

A walk goes along an edge, or an edge is drawn, in proportion to its weight, so there is no such thing as one below 0. A
number whose sign means something can be a feature of the edge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array

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
