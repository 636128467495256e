"""The linear map, on the CPU by the faster library and without compiling anew for each batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from models.kernels.dense.products import factor, gradients_of_map, multiply_rows, new_rows, takes_pieces, widened

_LEAST_PRODUCTS = 1 << 22
"""Multiplications from which this file's products are taken: 64 x 256 x 256. Below, Python's own time counts."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = x W^T + b.

    Args:
        x: (..., in), any dtype and device. Large bfloat16 matrices on a CPU, and float32 ones on AMD's processors, go
            through oneDNN piece by piece (`products.py`), in both directions.
        weight: (out, in).
        bias: (out,) or None.

    Returns:
        (..., out), in autocast's dtype where that is on. Only roundings differ from `torch.nn.functional.linear`.
    """
    rows = to_compute(x)
    if _fit(rows, weight) and takes_pieces(rows) and x.numel() * len(weight) >= _LEAST_PRODUCTS:
        return _Linear.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return F.linear(x, weight, bias)


def _fit(rows: Tensor, *weights: Tensor) -> bool:
    """Whether these may be multiplied: one dtype, or autocast says which. Of others torch says what is wrong."""
    return torch.is_autocast_enabled(rows.device.type) or all(weight.dtype == rows.dtype for weight in weights)


def to_compute(x: Tensor) -> Tensor:
    """Return x in the dtype that autocast asks products for; x itself without."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


class Linear(nn.Linear):
    """nn.Linear through `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Map each row."""
        return linear(x, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = widened(x)
        ctx.save_for_backward(rows, weight)
        ctx.dtype = x.dtype
        bias = None if bias is None else factor(bias, rows)
        return multiply_rows([(rows, factor(weight, rows).t())], new_rows(rows, len(weight)), bias).to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad = widened(grad.contiguous())
        grad_x = grad_weight = grad_bias = None
        if ctx.needs_input_grad[0]:
            grad_x = multiply_rows([(grad, factor(weight, grad))], new_rows(grad, x.shape[1])).to(ctx.dtype)
        if any(ctx.needs_input_grad[1:]):
            grad_weight, grad_bias = gradients_of_map(grad, x, with_bias=ctx.needs_input_grad[2])
        return grad_x, _as(grad_weight, weight), _as(grad_bias, weight)


def _as(grad: Tensor | None, weight: Tensor) -> Tensor | None:
    return None if grad is None else grad.to(weight.dtype)
