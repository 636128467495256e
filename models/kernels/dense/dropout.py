"""ReLU or ELU and dropout on the CPU, with random bits hashed from a key and the element's number.

Nothing is kept for the backward pass but what is there anyway: behind a ReLU dropped elements are the zeros of the
output, without one the bits are hashed again. torch draws one random number an element and keeps a mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from models.kernels.memory import empty
from models.kernels.simd import _llvm
from models.kernels.simd._llvm import FLOAT, INT
from models.kernels.simd.vector import (
    Lanes,
    has_kernels,
    instruction,
    is_streamed,
    load,
    maximum,
    storage,
    store,
    where_positive,
    zeros,
)
from models.kernels.threads import even_rows, run_rows

_LANES = 64
_BLOCK = 1 << 13
"""Elements that one thread takes at least."""
_KEYS = 1 << 63


def relu_dropout(
    x: Tensor, rate: float, training: bool = True, *, inplace: bool = False, key: int | None = None
) -> Tensor:
    """y_i = k_i max(x_i, 0) / (1 - rate), each k_i 1 with probability 1 - rate, else 0.

    Args:
        x: float32 or bfloat16, of any shape; differentiable. Others, and other devices, go through torch's functions,
            whose bits are others.
        rate: share of elements to drop, 0 <= rate < 1; in steps of 2^-32.
        training: whether to drop at all.
        inplace: write the result over x, where nothing else reads x.
        key: what the bits depend on, from 0 to 2^63 - 1; drawn from torch's generator unless given.

    Raises:
        ValueError: the rate is out of bounds.
    """
    _check(rate)
    if not training or rate == 0 or not has_kernels(x):
        return F.dropout(F.relu(x, inplace), rate, training)  # its backward reads what it has written
    return _ReluDropout.apply(x, rate, inplace, draw(key))  # type: ignore[no-untyped-call]


def dropout(x: Tensor, rate: float, training: bool = True, *, inplace: bool = False, key: int | None = None) -> Tensor:
    """y_i = k_i x_i / (1 - rate), each k_i 1 with probability 1 - rate, else 0; arguments as of `relu_dropout`.

    On other devices a key's bits are others than on the CPU, and the same each time too.
    """
    _check(rate)
    if not training or rate == 0 or (key is None and not has_kernels(x)):
        return F.dropout(x, rate, training, inplace)
    if not has_kernels(x):
        generator = torch.Generator(x.device).manual_seed(draw(key))
        kept = torch.rand(x.shape, generator=generator, device=x.device) >= rate
        return (x.mul_(kept) if inplace else x * kept).div_(1 - rate)
    return _Dropout.apply(x, rate, inplace, draw(key))  # type: ignore[no-untyped-call]


def elu_dropout(x: Tensor, rate: float, *, inplace: bool = False, key: int | None = None) -> Tensor:
    """y_i = k_i elu(x_i) / (1 - rate), elu(x) = x above 0, else e^x - 1, in training; arguments as of `relu_dropout`.

    y alone is kept for the backward pass, where ELU and dropout one after the other keep two tensors.
    """
    if rate == 0 or not has_kernels(x):
        return dropout(F.elu(x, inplace=inplace), rate, key=key)
    return _EluDropout.apply(x, rate, inplace, draw(key))  # type: ignore[no-untyped-call]


def _check(rate: float) -> None:
    if not 0 <= rate < 1:
        raise ValueError(f"a dropout rate is at least 0 and below 1, not {rate}")


def draw(key: int | None) -> int:
    """Return the key, or one that is drawn from torch's generator."""
    return int(torch.randint(_KEYS - 1, ())) if key is None else key


class _ReluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, inplace: bool, key: int) -> Tensor:
        y = _target(ctx, x, inplace)
        _drop(x, y, rate, key, True)
        ctx.rate = rate
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (y,) = ctx.saved_tensors
        grad, grad_x = grad.contiguous(), empty(y.shape, y.dtype)
        _run(_relu_gradient, grad_x, storage(y), storage(grad), np.float32(1 / (1 - ctx.rate)))
        return grad_x, None, None, None


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, inplace: bool, key: int) -> Tensor:
        ctx.rate, ctx.key = rate, key
        y = _target(ctx, x, inplace)
        _drop(x, y, rate, key, None)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        grad_x = empty(grad.shape, grad.dtype)
        _drop(grad, grad_x, ctx.rate, ctx.key, None)
        return grad_x, None, None, None


class _EluDropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, rate: float, inplace: bool, key: int) -> Tensor:
        y = F.elu(_target(ctx, x, True) if inplace else x.contiguous(), inplace=inplace)
        _drop(y, y, rate, key, None)
        ctx.rate, ctx.key = rate, key
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (y,) = ctx.saved_tensors
        kept, scale = empty(grad.shape, grad.dtype), 1 / (1 - ctx.rate)
        _drop(grad, kept, ctx.rate, ctx.key, None)
        # Where y is s elu(x), s the scale of dropout, torch's gradient of a scaled ELU has both: s above 0, else y + s.
        torch.ops.aten.elu_backward.grad_input(kept.mul_(1 - ctx.rate), 1.0, scale, 1.0, True, y, grad_input=kept)
        return kept, None, None, None


def _target(ctx: Any, x: Tensor, inplace: bool) -> Tensor:
    if not inplace:
        return empty(x.shape, x.dtype)
    if not x.is_contiguous():
        raise ValueError("dropout writes over contiguous tensors only; leave inplace out")
    ctx.mark_dirty(x)
    return x


def _run(kernel: Any, y: Tensor, *arguments: Any) -> None:
    """Let a kernel fill y: whole vectors on several threads, then the elements that are left."""
    size, left = y.numel(), y.numel() % _LANES
    lanes = Lanes(_LANES, streaming=is_streamed(y if left else y.view(-1, _LANES)))
    bounds = np.minimum(even_rows(-(-size // _BLOCK)) * _BLOCK, size - left)
    run_rows(kernel, bounds, lanes, _LANES, storage(y), *arguments)
    if left:
        kernel(size - left, size, Lanes(_LANES, partly=True), left, storage(y), *arguments)


def _drop(x: Tensor, y: Tensor, rate: float, key: int, relu: bool | None) -> None:
    _run(_drop_elements, y, storage(x.contiguous()), key, threshold(rate), np.float32(1 / (1 - rate)), relu)


def threshold(rate: float) -> int:
    """Return what the 32 bits of an element that is kept come to at least, as `where_kept` asks."""
    return min(round(rate * 2**32), 2**32 - 1)


@instruction
def where_kept(typing, number, key, threshold, value):  # type: ignore[no-untyped-def]
    """Return value where the hash of number + lane is at least the threshold, else 0.

    Two rounds of a 32-bit mixer (multiplications and shifts), half of the key before each, the upper half of large
    numbers with the second. Written in LLVM's types: numba would make 64-bit numbers of 32-bit ones.
    """

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes

        def every(scalar: Any) -> Any:
            return _llvm.splat(builder, scalar, lanes)

        def half(value: Any, upper: bool) -> Any:
            return builder.trunc(builder.lshr(value, value.type(32)) if upper else value, INT)

        def fold(bits: Any, shift: int) -> Any:
            return builder.xor(bits, builder.lshr(bits, _llvm.constant(INT, lanes, shift)))

        def times(bits: Any, factor: int) -> Any:
            return builder.mul(bits, _llvm.constant(INT, lanes, factor))

        number, key, threshold, value = args
        bits = builder.add(every(half(number, False)), ir.Constant(ir.VectorType(INT, lanes), list(range(lanes))))
        bits = times(fold(builder.xor(bits, every(half(key, False))), 16), 0x7FEB352D)
        second = builder.add(half(key, True), builder.mul(half(number, True), INT(0x9E3779B9)))
        bits = times(fold(builder.xor(bits, every(second)), 15), 0x846CA68B)
        kept = builder.icmp_unsigned(">=", fold(bits, 16), every(half(threshold, False)))
        return builder.select(kept, value, _llvm.constant(FLOAT, lanes, 0.0))

    return value(types.int64, types.int64, types.int64, value), generate


@njit(cache=True, nogil=True)
def _drop_elements(low, high, lanes, count, y, x, key, threshold, scale, relu):  # type: ignore[no-untyped-def]
    for i in range(low, high, _LANES):
        value = load(lanes, x, i, count)
        if relu is not None:
            value = maximum(value, zeros(lanes))
        store(lanes, y, i, where_kept(i, key, threshold, value * scale), count)


@njit(cache=True, nogil=True)
def _relu_gradient(low, high, lanes, count, grad_x, y, grad, scale):  # type: ignore[no-untyped-def]
    for i in range(low, high, _LANES):
        change = load(lanes, grad, i, count) * scale
        store(lanes, grad_x, i, where_positive(load(lanes, y, i, count), change), count)
