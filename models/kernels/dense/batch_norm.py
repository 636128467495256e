"""Batch normalisation, ReLU and dropout in two passes on the CPU: one over each column's numbers, one that writes.

What the backward pass needs of ReLU and dropout it computes again, from the input and from the key of the random bits:
kept are the input, which nobody else has, and two numbers a column. Loops go over a tile of columns: `count` of them
from `column` on, in rows that are `width` wide; `relu` is None or True; `key`, `threshold` and `kept_scale` are of the
dropout, or None.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.dense.dropout import draw, dropout, threshold, where_kept
from models.kernels.memory import empty
from models.kernels.shapes import check_shape
from models.kernels.simd.vector import (
    has_kernels,
    load,
    maximum,
    prefetch,
    storage,
    store,
    tiles,
    where_positive,
    zeros,
)
from models.kernels.sparse.adjacency import range_number
from models.kernels.threads import even_rows, run_rows

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


_TILE = 64
"""Columns whose sums and constants are in registers at once."""
_RANGES = 8
"""Ranges of rows whose sums are added up: a number of their own, so that results do not follow from that of threads."""
_LEAST_ROWS = 1024
"""Rows of such a range, at least."""


class Running(NamedTuple):
    """The running statistics of a batch norm, which a batch moves on."""

    mean: Tensor
    """float32 (D,)."""
    variance: Tensor
    """float32 (D,)."""
    momentum: float
    """Share of the batch's statistics in the new ones."""


def batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    eps: float = 1e-5,
    *,
    relu: bool = False,
    rate: float = 0.0,
    key: int | None = None,
) -> Tensor:
    """y = drop(act((x - mean) / sqrt(variance + eps) * weight + bias)), by the batch's own statistics, as in training.

    Args:
        x: float32 or bfloat16 (n, D), n at least 2; differentiable. Others, and other devices, go through torch.
        weight: float32 (D,); differentiable.
        bias: float32 (D,); differentiable.
        running: moved on in place, the variance as that of a sample (over n - 1).
        eps: added to the variance.
        relu: whether act is ReLU; else nothing.
        rate: share of the result that is dropped, 0 <= rate < 1.
        key: what dropped elements depend on, as in `dropout.dropout`.

    Returns:
        (n, D) in x's dtype, computed in float32. Sums over rows do not depend on the number of threads.

    Raises:
        ValueError: shapes that do not fit together, fewer than two rows, a rate out of bounds.
    """
    check_shape("x", x, "n", "D")
    for name, values in (("weight", weight), ("bias", bias), ("mean", running.mean), ("variance", running.variance)):
        check_shape(name, values, x.shape[1])
    if len(x) < 2:
        raise ValueError(f"a batch norm needs two rows at least, not {len(x)}")
    if not 0 <= rate < 1:
        raise ValueError(f"a dropout rate is at least 0 and below 1, not {rate}")
    if not has_kernels(x) or weight.dtype != torch.float32:
        return reference_batch_norm(x, weight, bias, running, eps, relu=relu, rate=rate, key=key)
    options = (eps, relu, rate, draw(key) if rate else 0)
    return _BatchNorm.apply(x, weight, bias, running, *options)  # type: ignore[no-untyped-call]


def reference_batch_norm(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    running: Running,
    eps: float = 1e-5,
    *,
    relu: bool = False,
    rate: float = 0.0,
    key: int | None = None,
) -> Tensor:
    """Do `batch_norm` with torch's operations, one after the other."""
    mean, variance, momentum = running
    y = torch.nn.functional.batch_norm(x, mean, variance, weight, bias, True, momentum, eps)
    return dropout(torch.relu(y) if relu else y, rate, key=key)


class _BatchNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        running: Running,
        eps: float,
        relu: bool,
        rate: float,
        key: int,
    ) -> Tensor:
        x = x.contiguous()
        rows, width = x.shape
        bounds = _ranges(rows)
        sums = np.empty((2, len(bounds) - 1, width), np.float32)
        _run(add_moments, bounds, width, storage(x), *sums.reshape(2, -1), bounds)
        columns = np.empty((3, width), np.float32)
        statistics = (running.mean.numpy(), running.variance.numpy(), np.float32(running.momentum))
        _finish_moments(bounds, sums, np.float32(eps), storage(weight), columns, statistics)
        mean, inverse, scale = columns
        y = empty((rows, width), x.dtype)
        kept = (key, threshold(rate), np.float32(1 / (1 - rate))) if rate else (None, None, None)
        ctx.chances = (True if relu else None, *kept)  # None leaves activation or dropout out
        given = (storage(x), mean, scale, storage(bias), *ctx.chances)
        _run(normalise_rows, _steps(rows), width, *given, storage(y))
        ctx.save_for_backward(x, bias)
        ctx.columns, ctx.bounds = (mean, inverse, scale), bounds
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, bias = ctx.saved_tensors
        (rows, width), grad = x.shape, grad.contiguous()
        mean, inverse, scale = ctx.columns
        given = (storage(x), storage(grad), mean, scale, storage(bias), *ctx.chances)
        sums = np.empty((2, len(ctx.bounds) - 1, width), np.float32)
        _run(add_gradients, ctx.bounds, width, *given, *sums.reshape(2, -1), ctx.bounds)
        columns = np.empty((4, width), np.float32)
        _finish_gradients(np.float32(rows), sums, inverse, scale, columns)
        grad_weight, grad_bias, slope, offset = columns
        grad_x = None
        if ctx.needs_input_grad[0]:
            grad_x = empty((rows, width), x.dtype)
            _run(input_gradient_rows, _steps(rows), width, *given, slope, offset, storage(grad_x))
        return grad_x, torch.from_numpy(grad_weight), torch.from_numpy(grad_bias), *[None] * 5


def _ranges(rows: int) -> Any:
    """Return bounds of the ranges of rows whose sums are kept apart."""
    count = max(1, min(_RANGES, rows // _LEAST_ROWS))
    return np.array([rows * i // count for i in range(count + 1)])


def _steps(rows: int) -> Any:
    """Return bounds of the ranges of rows that threads take; few rows are not worth a second one."""
    return even_rows(rows) if rows >= _LEAST_ROWS else np.array([0, rows])


def _run(kernel: Any, bounds: Any, width: int, *arguments: Any) -> None:
    for column, lanes, count in tiles(width, _TILE):
        run_rows(kernel, bounds, lanes, count, column, width, *arguments)


@njit(cache=True, nogil=True)
def _finish_moments(bounds, sums, eps, weight, columns, statistics):  # type: ignore[no-untyped-def]
    """Join the ranges' means and sums of squares (Chan et al., 1979), and move the running statistics on."""
    rows, means, squares = bounds[-1], sums[0], sums[1]
    mean, inverse, scale = columns[0], columns[1], columns[2]
    running_mean, running_variance, momentum = statistics
    for j in range(len(mean)):
        seen, middle, square = 0.0, 0.0, 0.0
        for part in range(len(bounds) - 1):
            size = float(bounds[part + 1] - bounds[part])
            delta = means[part, j] - middle
            square += squares[part, j] + delta * delta * seen * size / (seen + size)
            middle += delta * size / (seen + size)
            seen += size
        mean[j] = middle
        inverse[j] = 1 / np.sqrt(square / rows + eps)
        scale[j] = inverse[j] * weight[j]
        running_mean[j] += momentum * (middle - running_mean[j])
        running_variance[j] += momentum * (square / (rows - 1) - running_variance[j])


@njit(cache=True, nogil=True)
def _finish_gradients(rows, sums, inverse, scale, columns):  # type: ignore[no-untyped-def]
    """From sums of dz and of dz (x - mean), z before the activation, to dx = scale dz + slope (x - mean) + offset."""
    grad_weight, grad_bias, slope, offset = columns[0], columns[1], columns[2], columns[3]
    for j in range(len(inverse)):
        total, product = sums[0, :, j].sum(), sums[1, :, j].sum()
        grad_bias[j], grad_weight[j] = total, product * inverse[j]
        offset[j] = -scale[j] * total / rows
        slope[j] = -scale[j] * inverse[j] * inverse[j] * product / rows
