"""Pooling of contiguous groups of rows, and its inverse: the nodes of each graph of a batch, the edges of each node."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.backends import widen
from models.kernels.shapes import check_int64, check_like, check_shape
from models.kernels.simd.vector import Lanes, has_kernels, is_streamed, load, storage, store, tiles, zeros
from models.kernels.sparse.adjacency import split_rows
from models.kernels.sparse.product import sum_rows
from models.kernels.sparse.spmm_max import MAX_WIDEST, bits, take_maxima, where_rank
from models.kernels.threads import num_threads, run_rows

_LANES = 64


def segment_reduce(x: Tensor, offsets: Tensor, reduce: str) -> Tensor:
    """y_g = reduce of x_i over offsets_g <= i < offsets_{g+1}: pool each graph's nodes.

    Args:
        x: float32 or bfloat16 (n, D); differentiable.
        offsets: int64 (G + 1,), from 0 to n, never falling.
        reduce: `sum`, `mean` or `max`.

    Returns:
        (G, D) in x's dtype, accumulated in float32; 0 for groups without rows. The maximum's gradient goes to the first
        of equal rows (on a GPU it is shared among them).

    Raises:
        ValueError: the reduction is unknown, another shape or dtype, or other offsets (asked on a CPU only: it would
            wait for a GPU).
    """
    if reduce not in ("sum", "mean", "max"):
        raise ValueError(f"reduce is sum, mean or max, not {reduce!r}")
    check_shape("x", x, "n", "D")
    _check(offsets, len(x))
    if not has_kernels(x):
        return reference_segment_reduce(widen(x), offsets, reduce).to(x.dtype)
    operation = _Max if reduce == "max" else _Sum
    return operation.apply(x, offsets, _inverse_counts(offsets) if reduce == "mean" else None)  # type: ignore[no-untyped-call]


def segment_broadcast(x: Tensor, offsets: Tensor, count: int | None = None) -> Tensor:
    """y_i = x_g for offsets_g <= i < offsets_{g+1}: give each graph's row to its nodes.

    Args:
        x: float32 or bfloat16 (G, D); differentiable.
        offsets: int64 (G + 1,), from 0, never falling.
        count: n, where it is known; without it a GPU is asked, and waited for.

    Returns:
        (n, D) in x's dtype, n = offsets_G.

    Raises:
        ValueError: another shape or dtype, or other offsets (asked on a CPU only: it would wait for a GPU).
    """
    _check(offsets, count)
    check_shape("x", x, len(offsets) - 1, "D")
    if not has_kernels(x):
        return reference_segment_broadcast(widen(x), offsets, count).to(x.dtype)
    return _Broadcast.apply(x, offsets)  # type: ignore[no-untyped-call]


def segment_exchange(x: Tensor, state: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """y_i = x_i + state_g and pooled_g = sum of y_i over group g's rows: what virtual nodes tell and hear, in one pass.

    Args:
        x: float32 or bfloat16 (n, D); differentiable.
        state: (G, D) of x's dtype; differentiable.
        offsets: int64 (G + 1,), from 0 to n, never falling.

    Returns:
        (n, D) and (G, D) in x's dtype, accumulated in float32.

    Raises:
        ValueError: another shape or dtype, or other offsets (asked on a CPU only: it would wait for a GPU).
    """
    check_shape("x", x, "n", "D")
    _check(offsets, len(x))
    check_shape("state", state, len(offsets) - 1, x.shape[1])
    check_like("state", state, "x", x)
    if not has_kernels(x):
        y = widen(x) + reference_segment_broadcast(widen(state), offsets, len(x))
        return y.to(x.dtype), reference_segment_reduce(y, offsets, "sum").to(x.dtype)
    both: tuple[Tensor, Tensor] = _Exchange.apply(x, state, offsets)  # type: ignore[no-untyped-call]
    return both


def _check(offsets: Tensor, count: int | None = None) -> None:
    """Refuse other offsets than those of `count` rows, or of any number."""
    if offsets.dim() != 1 or not len(offsets):
        raise ValueError(f"offsets must be (G + 1,), not {tuple(offsets.shape)}")
    check_int64("offsets", offsets)
    if offsets.device.type != "cpu":
        return
    numbers = offsets.numpy()
    if numbers[0] != 0:
        raise ValueError(f"offsets must begin with 0, not {numbers[0]}")
    if not _rises(numbers):
        raise ValueError("offsets must never fall")
    if count is not None and numbers[-1] != count:
        raise ValueError(f"offsets must be from 0 to x's {count} rows, not from 0 to {numbers[-1]}")


@njit(cache=True, nogil=True)
def _rises(offsets):  # type: ignore[no-untyped-def]
    rises = True
    for group in range(len(offsets) - 1):
        rises &= offsets[group] <= offsets[group + 1]
    return rises


def reference_segment_reduce(x: Tensor, offsets: Tensor, reduce: str) -> Tensor:
    """Do `segment_reduce` by scattering. Not yet run on a GPU."""
    counts = offsets[1:] - offsets[:-1]
    groups = torch.repeat_interleave(counts, output_size=len(x))
    if reduce == "max":
        start = x.new_full((len(counts), x.shape[1]), -torch.inf)
        y = start.scatter_reduce(0, groups.unsqueeze(1).expand(-1, x.shape[1]), x, "amax", include_self=True)
        return y.masked_fill((counts == 0).unsqueeze(1), 0)
    y = x.new_zeros(len(counts), x.shape[1]).index_add(0, groups, x)
    return y if reduce == "sum" else y / counts.clamp(min=1).unsqueeze(1).to(x.dtype)


def reference_segment_broadcast(x: Tensor, offsets: Tensor, count: int | None = None) -> Tensor:
    """Do `segment_broadcast` by repeating. Not yet run on a GPU."""
    return x.repeat_interleave(offsets[1:] - offsets[:-1], dim=0, output_size=count)


def _inverse_counts(offsets: Tensor) -> Tensor:
    return (offsets[1:] - offsets[:-1]).clamp(min=1).to(torch.float32).reciprocal()


def _sum_segments(x: Tensor, offsets: Tensor, scale: Tensor | None = None) -> Tensor:
    """Sum groups of rows, times scale (G,) float32, without gradients."""
    y = torch.empty(len(offsets) - 1, x.shape[1], dtype=x.dtype)
    bounds = split_rows(offsets.numpy(), num_threads())
    factors = (None, None, None, None if scale is None else scale.numpy())
    for column, lanes, count in tiles(x.shape[1]):
        place = (lanes, count, x.shape[1], column, 1, 0)
        run_rows(sum_rows, bounds, *place, offsets.numpy(), None, storage(x.contiguous()), *factors, storage(y))
    return y


def _spread(x: Tensor, offsets: Tensor, scale: Tensor | None = None) -> Tensor:
    """Copy each group's row, times scale (G,) float32, to the group's members, without gradients."""
    y = torch.empty(int(offsets[-1]), x.shape[1], dtype=x.dtype)
    arrays = (offsets.numpy(), storage(x.contiguous()), None if scale is None else scale.numpy(), storage(y))
    whole, part = Lanes(_LANES, streaming=is_streamed(y)), Lanes(_LANES, partly=True)
    run_rows(_spread_rows, split_rows(offsets.numpy(), num_threads()), whole, part, x.shape[1], *arrays)
    return y


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, offsets: Tensor, scale: Tensor | None) -> Tensor:
        ctx.save_for_backward(offsets, scale)
        return _sum_segments(x, offsets, scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _spread(grad, *ctx.saved_tensors), None, None


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, offsets: Tensor) -> Tensor:
        ctx.save_for_backward(offsets)
        return _spread(x, offsets)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _sum_segments(grad, *ctx.saved_tensors), None


def _exchange(x: Tensor, state: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    y, pooled = torch.empty_like(x), torch.empty_like(state)
    whole, part = Lanes(_LANES, streaming=is_streamed(y)), Lanes(_LANES, partly=True)
    arrays = (offsets.numpy(), *map(storage, (x, state, y, pooled)))
    run_rows(_exchange_rows, split_rows(offsets.numpy(), num_threads()), whole, part, x.shape[1], *arrays)
    return y, pooled


class _Exchange(torch.autograd.Function):
    """Its matrix is symmetric: the gradients go the way of the values."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, state: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(offsets)
        ctx.set_materialize_grads(False)
        return _exchange(x.contiguous(), state.contiguous(), offsets)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_pooled: Tensor | None) -> tuple[Tensor | None, ...]:
        (offsets,) = ctx.saved_tensors
        if grad_pooled is None:
            return grad, None if grad is None else _sum_segments(grad, offsets), None
        if grad is None:
            grad = _spread(grad_pooled, offsets)
            return grad, _sum_segments(grad, offsets), None
        return *_exchange(grad.contiguous(), grad_pooled.contiguous(), offsets), None


class _Max(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, offsets: Tensor, _: None) -> Tensor:
        y, rank = take_maxima(x, split_rows(offsets.numpy(), num_threads()), offsets, None)
        ctx.save_for_backward(offsets, rank)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        offsets, rank = ctx.saved_tensors
        grad_x = torch.empty(int(offsets[-1]), grad.shape[1], dtype=grad.dtype)
        bounds = split_rows(offsets.numpy(), num_threads())
        arrays = (offsets.numpy(), storage(grad.contiguous()), bits(rank), storage(grad_x))
        for column, lanes, count in tiles(grad.shape[1], MAX_WIDEST):
            run_rows(_spread_maxima, bounds, lanes, count, grad.shape[1], column, *arrays)
        return grad_x, None, None


@njit(cache=True, nogil=True)
def _spread_rows(low, high, whole, part, width, offsets, x, scale, y):  # type: ignore[no-untyped-def]
    left = width % _LANES
    for group in range(low, high):
        factor = np.float32(1) if scale is None else scale[group]
        for i in range(offsets[group], offsets[group + 1]):  # in the order of memory
            for column in range(0, width - left, _LANES):
                value = load(whole, x, group * width + column, _LANES)
                store(whole, y, i * width + column, value * factor, _LANES)
            if left:
                value = load(part, x, (group + 1) * width - left, left)
                store(part, y, (i + 1) * width - left, value * factor, left)


@njit(cache=True, nogil=True)
def _exchange_rows(low, high, whole, part, width, offsets, x, state, y, pooled):  # type: ignore[no-untyped-def]
    left = width % _LANES
    for group in range(low, high):
        first, last = offsets[group], offsets[group + 1]
        for column in range(0, width - left, _LANES):
            _exchange_tile(group, first, last, whole, _LANES, column, width, x, state, y, pooled)
        if left:
            _exchange_tile(group, first, last, part, left, width - left, width, x, state, y, pooled)


@njit(inline="always")
def _exchange_tile(group, first, last, lanes, count, column, width, x, state, y, pooled):  # type: ignore[no-untyped-def]
    own, total = load(lanes, state, group * width + column, count), zeros(lanes)
    for i in range(first, last):
        value = load(lanes, x, i * width + column, count) + own
        total = total + value
        store(lanes, y, i * width + column, value, count)
    store(lanes, pooled, group * width + column, total, count)


@njit(cache=True, nogil=True)
def _spread_maxima(low, high, lanes, count, stride, column, offsets, grad, rank, grad_x):  # type: ignore[no-untyped-def]
    for group in range(low, high):
        at, first = group * stride + column, offsets[group]
        value, which = load(lanes, grad, at, count), load(lanes, rank, at, count)
        for i in range(first, offsets[group + 1]):
            store(lanes, grad_x, i * stride + column, where_rank(which, np.int32(i - first), value), count)
