"""Products of the two ends of node pairs, without copies of the ends: what a link predictor reads."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.backends import widen
from models.kernels.shapes import check_int64, check_shape
from models.kernels.simd.vector import (
    FAR,
    NEAR,
    has_kernels,
    is_streamed,
    load,
    prefetch,
    prefetch_far,
    storage,
    store,
    tiles,
    zeros,
)
from models.kernels.sparse.adjacency import split_rows
from models.kernels.threads import even_rows, num_threads, run_rows


def pair_product(x: Tensor, pairs: Tensor) -> Tensor:
    """y_i = x_u * x_v, element by element, for each pair i = (u, v).

    Args:
        x: float32 or bfloat16 (n, D); differentiable.
        pairs: int64 (2, P), rows of x.

    Returns:
        (P, D) in x's dtype. A row's gradient is summed in float32 over its pairs in their order.

    Raises:
        ValueError: another shape or dtype, or pairs of rows that x has not (asked on a CPU only: it would wait for a
            GPU, which stops there itself).
    """
    _check(x, pairs)
    if not has_kernels(x):
        return reference_pair_product(widen(x), pairs).to(x.dtype)
    return _Product.apply(x, pairs)  # type: ignore[no-untyped-call]


def _check(x: Tensor, pairs: Tensor) -> None:
    check_shape("x", x, "n", "D")
    check_shape("pairs", pairs, 2, "P")
    check_int64("pairs", pairs)
    if pairs.device.type != "cpu" or not pairs.numel():
        return
    rows = pairs.numpy()
    if _largest(rows) >= len(x):
        expected = f"from 0 to below {len(x)}, the rows of x"
        raise ValueError(f"pairs must be {expected}, not from {rows.min()} to {rows.max()}")


@njit(cache=True, nogil=True)
def _largest(pairs):  # type: ignore[no-untyped-def]
    """Return the largest of pairs (2, P), without signs: one pass, and what is negative is larger than all rows."""
    largest = np.uint64(0)
    for end in range(2):
        for i in range(pairs.shape[1]):
            largest = max(largest, np.uint64(pairs[end, i]))
    return largest


def reference_pair_product(x: Tensor, pairs: Tensor) -> Tensor:
    """Do `pair_product` by gathering. Not yet run on a GPU."""
    return x[pairs[0]] * x[pairs[1]]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, pairs: Tensor) -> Tensor:
        ctx.save_for_backward(x, pairs)
        y = torch.empty(pairs.shape[1], x.shape[1], dtype=x.dtype)
        arrays = (pairs[0].numpy(), pairs[1].numpy(), storage(x.contiguous()), storage(y))
        bounds = even_rows(pairs.shape[1])
        for column, lanes, count in tiles(x.shape[1], streaming=is_streamed(y)):
            run_rows(_multiply_pairs, bounds, lanes, count, x.shape[1], column, *arrays)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        x, pairs = ctx.saved_tensors
        grad_x = torch.empty(x.shape, dtype=x.dtype)
        starts, places, others = _by_row(pairs.numpy(), len(x))
        arrays = (starts, places, others, storage(grad.to(x.dtype).contiguous()), storage(x.contiguous()))
        bounds = split_rows(starts, num_threads())
        for column, lanes, count in tiles(x.shape[1]):
            run_rows(_sum_pairs, bounds, lanes, count, x.shape[1], column, *arrays, storage(grad_x))
        return grad_x, None


@njit(cache=True, nogil=True)
def _multiply_pairs(low, high, lanes, count, stride, column, first, second, x, y):  # type: ignore[no-untyped-def]
    for i in range(low, high):
        # Written out here and below: a function that takes the arrays counts references to them, a third of the time.
        if i + FAR < high:
            prefetch_far(lanes, x, first[i + FAR] * stride + column)
            prefetch_far(lanes, x, second[i + FAR] * stride + column)
        if i + NEAR < high:
            prefetch(lanes, x, first[i + NEAR] * stride + column)
            prefetch(lanes, x, second[i + NEAR] * stride + column)
        value = load(lanes, x, first[i] * stride + column, count)
        value = value * load(lanes, x, second[i] * stride + column, count)
        store(lanes, y, i * stride + column, value, count)


@njit(cache=True, nogil=True)
def _by_row(pairs, num_rows):  # type: ignore[no-untyped-def]
    """Return, for each row of x: starts int64 (n + 1,), and where it is an end, the pair and the pair's other end."""
    starts = np.zeros(num_rows + 2, np.int64)  # two ahead, so that filling leaves the bounds behind
    num_pairs = pairs.shape[1]
    for end in range(2):
        for i in range(num_pairs):
            starts[pairs[end, i] + 2] += 1
    for row in range(num_rows):
        starts[row + 2] += starts[row + 1]
    places, others = np.empty(2 * num_pairs, np.int64), np.empty(2 * num_pairs, np.int64)
    for i in range(num_pairs):
        for end in range(2):
            row = pairs[end, i]
            at = starts[row + 1]
            starts[row + 1] = at + 1
            places[at], others[at] = i, pairs[1 - end, i]
    return starts[: num_rows + 1], places, others


@njit(cache=True, nogil=True)
def _sum_pairs(  # type: ignore[no-untyped-def]
    low, high, lanes, count, stride, column, starts, places, others, grad, x, grad_x
):
    last = starts[high]
    for row in range(low, high):
        total = zeros(lanes)
        for k in range(starts[row], starts[row + 1]):
            if k + FAR < last:
                prefetch_far(lanes, grad, places[k + FAR] * stride + column)
                prefetch_far(lanes, x, others[k + FAR] * stride + column)
            if k + NEAR < last:
                prefetch(lanes, grad, places[k + NEAR] * stride + column)
                prefetch(lanes, x, others[k + NEAR] * stride + column)
            value = load(lanes, grad, places[k] * stride + column, count)
            total = total + value * load(lanes, x, others[k] * stride + column, count)
        store(lanes, grad_x, row * stride + column, total, count)
