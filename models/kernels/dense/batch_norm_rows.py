"""The loops of `batch_norm.py` over a tile of columns: `count` of them from `column` on, in rows that are `width` wide.

`relu` is None or True; `key`, `threshold` and `kept_scale` are those of the dropout, or None.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.dense.dropout import where_kept
from models.kernels.simd.vector import load, maximum, prefetch, store, where_positive, zeros
from models.kernels.sparse.ranges import range_number

_ROWS = 128
"""Rows whose mean is taken before their squares: a tile of them stays in the first-level cache."""
_AHEAD = 8
_ONE = np.float32(1)


@njit(cache=True, nogil=True)
def add_moments(low, high, lanes, count, column, width, x, means, squares, bounds):  # type: ignore[no-untyped-def]
    """Write the mean of each column over a range of rows, and the sum of squares of the distances from it.

    Chunks of rows are joined by Chan et al.'s formula: numbers far from zero lose nothing, and x is read once.
    """
    mean, square, seen = zeros(lanes), zeros(lanes), np.float32(0)
    for first in range(low, high, _ROWS):
        stop = min(first + _ROWS, high)
        total, apart = zeros(lanes), zeros(lanes)
        for row in range(first, stop):
            if row + _AHEAD < high:
                prefetch(lanes, x, (row + _AHEAD) * width + column)
            total = total + load(lanes, x, row * width + column, count)
        size = np.float32(stop - first)
        middle = total * (_ONE / size)
        for row in range(first, stop):
            distance = load(lanes, x, row * width + column, count) - middle
            apart = apart + distance * distance
        delta, share = middle - mean, size / (seen + size)
        square = square + apart + delta * delta * (seen * share)
        mean = mean + delta * share
        seen += size
    to = range_number(bounds, low) * width + column
    store(lanes, means, to, mean, count)
    store(lanes, squares, to, square, count)


@njit(cache=True, nogil=True)
def normalise_rows(  # type: ignore[no-untyped-def]
    low, high, lanes, count, column, width, x, mean, scale, bias, relu, key, threshold, kept_scale, y
):
    """y = drop(act((x - mean) scale + bias))."""
    middle, factor = load(lanes, mean, column, count), load(lanes, scale, column, count)
    shift = load(lanes, bias, column, count)
    for row in range(low, high):
        at = row * width + column
        value = (load(lanes, x, at, count) - middle) * factor + shift
        if relu is not None:
            value = maximum(value, zeros(lanes))
        if key is not None:
            value = where_kept(at, key, threshold, value * kept_scale)
        store(lanes, y, at, value, count)


@njit(cache=True, nogil=True)
def add_gradients(  # type: ignore[no-untyped-def]
    low, high, lanes, count, column, width, x, grad, mean, scale, bias, relu, key, threshold, kept_scale, plain,
    weighted, bounds,
):  # fmt: skip
    """Write a range's sums of dz and dz (x - mean), z what the activation is applied to."""
    middle, factor = load(lanes, mean, column, count), load(lanes, scale, column, count)
    shift = load(lanes, bias, column, count)
    total, product = zeros(lanes), zeros(lanes)
    for row in range(low, high):
        at = row * width + column
        if row + _AHEAD < high:
            prefetch(lanes, x, at + _AHEAD * width)
            prefetch(lanes, grad, at + _AHEAD * width)
        distance = load(lanes, x, at, count) - middle
        change = load(lanes, grad, at, count)
        if key is not None:
            change = where_kept(at, key, threshold, change * kept_scale)
        if relu is not None:
            change = where_positive(distance * factor + shift, change)
        total = total + change
        product = product + change * distance
    to = range_number(bounds, low) * width + column
    store(lanes, plain, to, total, count)
    store(lanes, weighted, to, product, count)


@njit(cache=True, nogil=True)
def input_gradient_rows(  # type: ignore[no-untyped-def]
    low, high, lanes, count, column, width, x, grad, mean, scale, bias, relu, key, threshold, kept_scale, slope,
    offset, grad_x,
):  # fmt: skip
    """dx = scale dz + slope (x - mean) + offset."""
    middle, factor = load(lanes, mean, column, count), load(lanes, scale, column, count)
    shift, steepness = load(lanes, bias, column, count), load(lanes, slope, column, count)
    constant = load(lanes, offset, column, count)
    for row in range(low, high):
        at = row * width + column
        distance, change = load(lanes, x, at, count) - middle, load(lanes, grad, at, count)
        if key is not None:
            change = where_kept(at, key, threshold, change * kept_scale)
        if relu is not None:
            change = where_positive(distance * factor + shift, change)
        store(lanes, grad_x, at, change * factor + distance * steepness + constant, count)
