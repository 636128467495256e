"""Dense parts of a layer on the CPU: the linear map by the faster library, ReLU and dropout in one pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from llvmlite import binding
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

_MKLDNN: Any = torch.backends.mkldnn
_PREFERS_ONEDNN = (
    binding.get_host_cpu_name().startswith("znver")
    and _MKLDNN.is_available()
    and not torch.cpu._is_amx_tile_supported()
)
"""AMD's Zen, where MKL takes none of its fast paths.

GFLOP/s of one core in float32, forward / by input / by weight, 15,000 x 256 times 256 x 256, November 2026:
Zen 4: MKL 85 / 82 / 91, oneDNN 101 / 101 / 97. Zen 5: MKL about 100, oneDNN 200 to 250.
By the name of the processor and not by a measurement, which on a busy machine would change results between runs.
"""
_LEAST_PRODUCTS = 1 << 28
"""Multiplications from which oneDNN is taken: 4096 x 256 x 256.

It compiles its code anew for each shape, 2 ms for the three products, and no two sampled batches have the same. From
here on it is ahead even so (Zen 4: 4,000 rows 21.0 ms against 21.9, 15,000 rows 70 against 75, or 64 if seen before).
"""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = x W^T + b.

    Args:
        x: (..., in), any dtype and device; large float32 matrices on AMD's processors go through oneDNN instead of MKL,
            in both directions. bfloat16, and float32 under autocast, do in torch itself.
        weight: (out, in).
        bias: (out,) or None.

    Returns:
        (..., out). Only the order of additions differs from `torch.nn.functional.linear`.
    """
    plain = x.device.type == "cpu" and x.dim() == 2 and x.dtype == weight.dtype == torch.float32
    large = x.numel() * len(weight) >= _LEAST_PRODUCTS
    if _PREFERS_ONEDNN and plain and large and not torch.is_autocast_enabled("cpu"):
        return _Linear.apply(x, weight, bias)  # type: ignore[no-untyped-call]
    return F.linear(x, weight, bias)


class Linear(nn.Linear):
    """nn.Linear through `linear`."""

    def forward(self, x: Tensor) -> Tensor:
        """Map each row."""
        return linear(x, self.weight, self.bias)


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = grad_bias = None
        with _matrix_products_by_onednn():
            if ctx.needs_input_grad[0]:
                grad_x = grad @ weight
            if ctx.needs_input_grad[1]:
                grad_weight = grad.t() @ x
        if ctx.needs_input_grad[2]:
            grad_bias = grad.sum(0)
        return grad_x, grad_weight, grad_bias


@contextmanager
def _matrix_products_by_onednn() -> Iterator[None]:
    """Send torch.matmul of float32 to oneDNN, which reads transposed operands where they lie.

    torch does so where it may round factors to bfloat16; without AMX oneDNN has no such product and computes in float32
    (a test compares with float64). The setting is the process's: products of other threads are as right either way.
    """
    before = _MKLDNN.matmul.fp32_precision
    _MKLDNN.matmul.fp32_precision = "bf16"
    try:
        yield
    finally:
        _MKLDNN.matmul.fp32_precision = before
