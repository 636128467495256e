"""Pooling of contiguous groups of rows, and its inverse: the nodes of each graph of a batch, the edges of each node."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.backends import widen
from models.kernels.shapes import check_int64, check_shape
from models.kernels.simd.vector import has_kernels, storage, tiles
from models.kernels.sparse.adjacency import split_rows
from models.kernels.sparse.product import sum_rows
from models.kernels.threads import num_threads, run_rows


def segment_reduce(x: Tensor, offsets: Tensor, reduce: str) -> Tensor:
    """y_g = reduce of x_i over offsets_g <= i < offsets_{g+1}: pool each graph's nodes.

    Args:
        x: float32 or bfloat16 (n, D); differentiable.
        offsets: int64 (G + 1,), from 0 to n, never falling.
        reduce: `sum`, `mean` or `max`.

    Returns:
        (G, D) in x's dtype, accumulated in float32; 0 for groups without rows. The maximum's gradient is shared
        among equal rows.

    Raises:
        ValueError: the reduction is unknown, another shape or dtype, or other offsets (asked on a CPU only: it would
            wait for a GPU).
    """
    if reduce not in ("sum", "mean", "max"):
        raise ValueError(f"reduce is sum, mean or max, not {reduce!r}")
    check_shape("x", x, "n", "D")
    _check(offsets, len(x))
    if reduce == "max" or not has_kernels(x):
        return reference_segment_reduce(widen(x), offsets, reduce).to(x.dtype)
    scale = offsets.diff().clamp(min=1).to(torch.float32).reciprocal() if reduce == "mean" else None
    return _SegmentSum.apply(x, offsets, scale)  # type: ignore[no-untyped-call]


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
    return widen(x).repeat_interleave(offsets.diff(), dim=0, output_size=count).to(x.dtype)


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
    if (np.diff(numbers) < 0).any():
        raise ValueError("offsets must never fall")
    if count is not None and numbers[-1] != count:
        raise ValueError(f"offsets must be from 0 to x's {count} rows, not from 0 to {numbers[-1]}")


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


class _SegmentSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, offsets: Tensor, scale: Tensor | None) -> Tensor:
        ctx.save_for_backward(offsets, scale)
        y = torch.empty(len(offsets) - 1, x.shape[1], dtype=x.dtype)
        bounds = split_rows(offsets.numpy(), num_threads())
        factors = (None, None, None, None if scale is None else scale.numpy())
        for column, lanes, count in tiles(x.shape[1]):
            place = (lanes, count, x.shape[1], column, 1, 0)
            run_rows(sum_rows, bounds, *place, offsets.numpy(), None, storage(x.contiguous()), *factors, storage(y))
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        offsets, scale = ctx.saved_tensors
        rows = grad if scale is None else (grad.float() * scale.unsqueeze(1)).to(grad.dtype)
        return rows.repeat_interleave(offsets.diff(), 0, output_size=int(offsets[-1])), None, None
