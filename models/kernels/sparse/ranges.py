"""What passes over the sources need: their edges, and sums with a copy for each range of rows: no race."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.sparse.adjacency import Adjacency
from models.kernels.threads import CHUNKS_A_THREAD

_MOST = 16
"""Ranges at most: each has a copy of the sums, which would outgrow the rows themselves."""


def few_ranges(adj: Adjacency) -> NDArray[np.int64]:
    """Return bounds of row ranges, one a thread, up to `_MOST`, none of them empty.

    What is summed in a copy a range is so rounded by the number of threads: were there as many copies for all, one
    thread would pay for what only several need.
    """
    bounds = adj.chunks()
    step = max(CHUNKS_A_THREAD, -(-(len(bounds) - 1) // _MOST))
    return np.unique(np.append(bounds[:-1:step], bounds[-1]))


def out_edges(adj: Adjacency, needs_positions: bool) -> tuple[Adjacency, Tensor]:
    """Return the edges from destinations to sources, and each one's position in `adj` if a kernel reads that."""
    if needs_positions:
        return adj.reverse(), adj.transpose().edges
    out = adj.reverse(ordered=False)
    return out, out.indices


@njit(inline="always")
def range_number(bounds, low):  # type: ignore[no-untyped-def]
    """Return which range, not an empty one, begins at `low`."""
    number = 0
    while bounds[number + 1] <= low:
        number += 1
    return number
