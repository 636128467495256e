"""The loops of `batch_norm.py`: over columns a tile of them at a time, over rows in the order of memory.

`relu` is None or True; `key`, `threshold` and `kept_scale` are those of the dropout, or None. Rows are `width` wide;
`whole` and `part` are the lanes of a tile of TILE columns and of the last one.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.dense.dropout import where_kept
from models.kernels.simd.vector import load, maximum, prefetch, store, where_positive, zeros
from models.kernels.sparse.ranges import range_number

TILE = 64
"""Columns whose sums and constants are in registers at once."""
_ROWS = 128
"""Rows whose mean is taken before their squares: a tile of them stays in the first-level cache."""
_AHEAD = 8
_ONE = np.float32(1)


@njit(cache=True, nogil=True)
def add_moments(low, high, whole, part, width, x, means, squares, bounds):  # type: ignore[no-untyped-def]
    """Write the mean of each column over a range of rows, and the sum of squares of the distances from it."""
    to, left = range_number(bounds, low) * width, width % TILE
    for column in range(0, width - left, TILE):
        _moments(low, high, whole, TILE, column, width, x, means, squares, to)
    if left:
        _moments(low, high, part, left, width - left, width, x, means, squares, to)


@njit(cache=True, nogil=True)
def _moments(low, high, lanes, count, column, width, x, means, squares, to):  # type: ignore[no-untyped-def]
    """Join chunks of rows by Chan et al.'s formula: numbers far from zero lose nothing, and x is read once."""
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
    store(lanes, means, to + column, mean, count)
    store(lanes, squares, to + column, square, count)


@njit(cache=True, nogil=True)
def normalise_rows(  # type: ignore[no-untyped-def]
    low, high, whole, part, width, x, mean, scale, bias, relu, key, threshold, kept_scale, y
):
    """y = drop(act((x - mean) scale + bias))."""
    left = width % TILE
    for row in range(low, high):
        for column in range(0, width - left, TILE):
            _normalise(row, whole, TILE, column, width, x, mean, scale, bias, relu, key, threshold, kept_scale, y)
        if left:
            _normalise(row, part, left, width - left, width, x, mean, scale, bias, relu, key, threshold, kept_scale, y)


@njit(inline="always")
def _normalise(  # type: ignore[no-untyped-def]
    row, lanes, count, column, width, x, mean, scale, bias, relu, key, threshold, kept_scale, y
):
    at = row * width + column
    distance = load(lanes, x, at, count) - load(lanes, mean, column, count)
    value = distance * load(lanes, scale, column, count) + load(lanes, bias, column, count)
    if relu is not None:
        value = maximum(value, zeros(lanes))
    if key is not None:
        value = where_kept(at, key, threshold, value * kept_scale)
    store(lanes, y, at, value, count)


@njit(cache=True, nogil=True)
def add_gradients(  # type: ignore[no-untyped-def]
    low, high, whole, part, width, x, grad, mean, scale, bias, relu, key, threshold, kept_scale, plain, weighted, bounds
):
    """Write a range's sums of dz and dz (x - mean), z what the activation is applied to."""
    to, left = range_number(bounds, low) * width, width % TILE
    for column in range(0, width - left, TILE):
        _gradients(
            low, high, whole, TILE, column, width, x, grad, mean, scale, bias, relu, key, threshold, kept_scale, plain,
            weighted, to,
        )  # fmt: skip
    if left:
        _gradients(
            low, high, part, left, width - left, width, x, grad, mean, scale, bias, relu, key, threshold, kept_scale,
            plain, weighted, to,
        )  # fmt: skip


@njit(cache=True, nogil=True)
def _gradients(  # type: ignore[no-untyped-def]
    low, high, lanes, count, column, width, x, grad, mean, scale, bias, relu, key, threshold, kept_scale, plain,
    weighted, to,
):  # fmt: skip
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
    store(lanes, plain, to + column, total, count)
    store(lanes, weighted, to + column, product, count)


@njit(cache=True, nogil=True)
def input_gradient_rows(  # type: ignore[no-untyped-def]
    low, high, whole, part, width, x, grad, mean, scale, bias, relu, key, threshold, kept_scale, slope, offset, grad_x
):
    """dx = scale dz + slope (x - mean) + offset."""
    left = width % TILE
    for row in range(low, high):
        for column in range(0, width - left, TILE):
            _input_gradient(
                row, whole, TILE, column, width, x, grad, mean, scale, bias, relu, key, threshold, kept_scale, slope,
                offset, grad_x,
            )  # fmt: skip
        if left:
            _input_gradient(
                row, part, left, width - left, width, x, grad, mean, scale, bias, relu, key, threshold, kept_scale,
                slope, offset, grad_x,
            )  # fmt: skip


@njit(inline="always")
def _input_gradient(  # type: ignore[no-untyped-def]
    row, lanes, count, column, width, x, grad, mean, scale, bias, relu, key, threshold, kept_scale, slope, offset,
    grad_x,
):  # fmt: skip
    at = row * width + column
    distance = load(lanes, x, at, count) - load(lanes, mean, column, count)
    factor, change = load(lanes, scale, column, count), load(lanes, grad, at, count)
    if key is not None:
        change = where_kept(at, key, threshold, change * kept_scale)
    if relu is not None:
        change = where_positive(distance * factor + load(lanes, bias, column, count), change)
    change = change * factor + distance * load(lanes, slope, column, count) + load(lanes, offset, column, count)
    store(lanes, grad_x, at, change, count)
