"""Sums that several ranges of rows add to: one copy a range, added up in order, so that the result is no race."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.kernels.adjacency import Adjacency
from models.kernels.threads import CHUNKS_A_THREAD

_MOST = 16
"""Ranges at most: each has a copy of the sums, which would outgrow the rows themselves."""


def few_ranges(adj: Adjacency) -> NDArray[np.int64]:
    """Return bounds of row ranges, one a thread, up to `_MOST`."""
    bounds = adj.chunks()
    step = max(CHUNKS_A_THREAD, -(-(len(bounds) - 1) // _MOST))
    return np.append(bounds[:-1:step], bounds[-1])


@njit(inline="always")
def range_number(bounds, low):  # type: ignore[no-untyped-def]
    """Return which range, not an empty one, begins at `low`."""
    number = 0
    while bounds[number + 1] <= low:
        number += 1
    return number
