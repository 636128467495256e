"""Loops that count points and edges by pixel."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.arrays import Array


@njit(cache=True, nogil=True)
def add_points(x_N: Array, y_N: Array, values_NC: Array, stamp_K2: Array, sums_HWC: Array, counts_HW: Array) -> None:
    """Add each point's values to the pixels of its stamp, and 1 to their counts.

    `x_N` and `y_N` are int32 pixels, `stamp_K2` int32 offsets (down, across); `values_NC`, `sums_HWC` and `counts_HW`
    are float32. What lies outside the picture is left out.
    """
    height, width = counts_HW.shape
    for row in range(len(x_N)):
        for k in range(len(stamp_K2)):
            down, across = y_N[row] + stamp_K2[k, 0], x_N[row] + stamp_K2[k, 1]
            if 0 <= down < height and 0 <= across < width:
                counts_HW[down, across] += np.float32(1)
                for c in range(values_NC.shape[1]):
                    sums_HWC[down, across, c] += values_NC[row, c]


@njit(cache=True, nogil=True)
def add_edges(x_N: Array, y_N: Array, edges_M2: Array, counts_HW: Array) -> None:
    """Add 1 to the count of each pixel that a straight edge passes: one a column or one a row, the longer way."""
    height, width = counts_HW.shape
    for m in range(len(edges_M2)):
        a, b = edges_M2[m, 0], edges_M2[m, 1]
        across, down = x_N[b] - x_N[a], y_N[b] - y_N[a]
        steps = max(abs(across), abs(down), 1)
        for k in range(steps + 1):
            # Half a pixel is added before the division rounds down.
            x = x_N[a] + (2 * across * k + steps) // (2 * steps)
            y = y_N[a] + (2 * down * k + steps) // (2 * steps)
            if 0 <= y < height and 0 <= x < width:
                counts_HW[y, x] += np.float32(1)


def ranked(counts_HW: Array) -> Array:
    """Return float32 (H, W): the share of non-empty pixels with at most this count, 0 where it is 0.

    Histogram equalisation: it shows differences at all densities alike, without a scale to choose.
    """
    different, place, sizes = np.unique(counts_HW, return_inverse=True, return_counts=True)
    if different[0] == 0:
        sizes[0] = 0
    shares: Array = (np.cumsum(sizes) / max(int(sizes.sum()), 1)).astype(np.float32)
    return shares[place].reshape(counts_HW.shape)
