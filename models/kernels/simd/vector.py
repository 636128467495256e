"""Vectors of floats in numba: one LLVM value `<lanes x float>`, kept in registers.

numba's own loops keep a row's accumulator in memory and test for aliasing on every row. Here an accumulator is a value:

    @njit(cache=True, nogil=True)
    def kernel(low, high, lanes, count, ...):
        acc = zeros(lanes)
        for e in range(first, last):
            acc = acc + weight[e] * load(lanes, x, indices[e] * stride, count)
        store(lanes, y, row * stride, acc, count)

    for column, lanes, count in tiles(width):
        kernel(low, high, lanes, count, ...)

The width is the type of the argument `lanes`: a kernel is compiled once for each width that it meets and, being a plain
function of a module, is found again in numba's cache by the next process. (A closure over intrinsics never is: numba
keys its cache by them, and they differ from process to process.) What a kernel can do without is passed as None: numba
leaves out the branch under `if weight is not None`.

LLVM splits a value wider than the machine's registers (64 lanes: four AVX-512 registers, eight of AVX2). Arithmetic is
float32; arrays hold float32, or bfloat16 as uint16 (`storage` makes either from a tensor): loads widen, stores round to
nearest even. Offsets count elements of flat, contiguous arrays.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from llvmlite import ir
from numba import types
from numba.extending import intrinsic, models, overload, register_model
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import BYTES, FLOAT, HAS_AVX512, INT, SHORT, KernelConstant

WIDTHS = (16, 32, 64, 128, 256)
"""Lanes that kernels are compiled for; 256 float32 accumulators are half of AVX-512's registers."""
NEAR, FAR = 12, 48
"""Rows ahead at which random rows are asked for in the first- and second-level cache.

The first level takes too few requests at a time to hide memory's latency, the second level's own latency shows where
the first is not asked at all: both together bring 1.8x in float32 and 2.3x in bfloat16 over the first alone (rows of
512 and 1024 bytes, Zen 4, November 2026; flat from 32 to 64 and from 8 to 16).
"""
WIDEST = 256 if HAS_AVX512 else 64
FAST = ("contract", "reassoc", "nsz", "arcp")  # not nnan or ninf: infinities and NaN must pass
_LINE_BYTES = 64
STREAMED_BYTES = 1 << 26
"""About twice a last-level cache."""
instruction: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic
"""numba's `intrinsic`, typed: callers do not pass `typing`."""


class VectorType(types.Type):
    """numba's type of `<lanes x float>`."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(name=f"Vector({lanes})")


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, ir.VectorType(FLOAT, kind.lanes))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Lanes(KernelConstant):
    """How wide a kernel's vectors are."""

    count: int
    partly: bool = False
    """Whether memory holds fewer floats than there are lanes."""
    streaming: bool = False
    """Whether stores of whole vectors bypass the caches; see `is_streamed`."""


def storage(tensor: Tensor) -> NDArray[Any]:
    """Return a contiguous CPU tensor, float32 or bfloat16, as the flat array that kernels read and write."""
    values = tensor.detach()
    values = values.view(torch.uint16) if values.dtype == torch.bfloat16 else values
    return values.numpy().reshape(-1)


def has_kernels(x: Tensor) -> bool:
    """Return whether kernels read this tensor; other devices and float64 (in tests of gradients) go through torch."""
    return x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16)


def is_streamed(y: Tensor) -> bool:
    """Return whether kernels should write a result, rows by rows, past the caches.

    One that they cannot hold anyway need not be read into them before it is overwritten: a tenth of a sparse product in
    float32, four fifths of plain copies (Zen 4, November 2026). Rows must be whole lines.
    """
    row_bytes = y.shape[-1] * y.element_size() if y.dim() else 0
    aligned = y.data_ptr() % _LINE_BYTES == 0 and row_bytes % _LINE_BYTES == 0
    return aligned and y.numel() * y.element_size() >= STREAMED_BYTES


@cache
def tiles(width: int, widest: int = WIDEST, streaming: bool = False) -> tuple[tuple[int, Lanes, int], ...]:
    """Cut columns into (first column, lanes, columns used): the widest lanes first, at most the last one in part."""
    cut: list[tuple[int, Lanes, int]] = []
    column = 0
    while column < width:
        left = width - column
        lanes = next((n for n in WIDTHS if left <= n <= widest), widest)
        cut.append((column, Lanes(lanes, left < lanes, streaming and left >= lanes), min(lanes, left)))
        column += lanes
    return tuple(cut)


# ---- memory


@instruction
def zeros(typing, lanes):  # type: ignore[no-untyped-def]
    """zeros(lanes) -> vector."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _llvm.constant(FLOAT, signature.return_type.lanes, 0.0)

    return VectorType(lanes.count)(lanes), generate


@instruction
def splat(typing, lanes, x):  # type: ignore[no-untyped-def]
    """splat(lanes, x) -> vector with the float32 x in all lanes."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _llvm.splat(builder, args[1], signature.return_type.lanes)

    return VectorType(lanes.count)(lanes, types.float32), generate


def _check_storage(kind: Any) -> None:
    fits = isinstance(kind, types.Array) and kind.ndim == 1 and kind.dtype in (types.float32, types.uint16)
    assert fits, f"vectors live in flat float32 or uint16 arrays, not {kind}"


@instruction
def load(typing, lanes, array, offset, count):  # type: ignore[no-untyped-def]
    """load(lanes, array, offset, count) -> vector; where `lanes` is partly, lanes from `count` on are 0."""
    _check_storage(array)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        element = _llvm.element(signature.args[1])
        raw = _llvm.load(context, builder, signature, args, element)
        return _llvm.widen(builder, raw, signature.return_type.lanes) if element is SHORT else raw

    return VectorType(lanes.count)(lanes, array, types.int64, types.int64), generate


@instruction
def store(typing, lanes, array, offset, vector, count):  # type: ignore[no-untyped-def]
    """store(lanes, array, offset, vector, count); where `lanes` is partly, only the first `count`."""
    _check_storage(array)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        shape, kind, width = signature.args[0], signature.args[1], signature.args[3].lanes
        element = _llvm.element(kind)
        value = _llvm.narrow(builder, args[3], width) if element is SHORT else args[3]
        pointer = _llvm.vector_address(context, builder, kind, args[1], args[2], width)
        if shape.partly:
            mask = _llvm.first_lanes(builder, args[4], width)
            name = f"llvm.masked.store.v{width}{'i16' if element is SHORT else 'f32'}.p0"
            arguments = [value, pointer, ir.Constant(INT, BYTES[element]), mask]
            _llvm.call(builder, name, ir.VoidType(), arguments)
        elif shape.streaming:
            _llvm.stream(builder, value, pointer, _LINE_BYTES)
        else:
            builder.store(value, pointer, align=BYTES[element])
        return context.get_dummy_value()

    return types.void(lanes, array, types.int64, VectorType(lanes.count), types.int64), generate


def _row_prefetch(cache: int) -> Callable[..., Any]:
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kind = signature.args[1]
        for first in range(0, signature.args[0].count, _LINE_BYTES // BYTES[_llvm.element(kind)]):
            at = builder.add(args[2], ir.Constant(args[2].type, first))
            _llvm.prefetch(builder, _llvm.address(context, builder, kind, args[1], at), cache)
        return context.get_dummy_value()

    return generate


@instruction
def prefetch(typing, lanes, array, offset):  # type: ignore[no-untyped-def]
    """prefetch(lanes, array, offset): ask for a row of this width, to be read about NEAR rows later."""
    return types.void(lanes, array, types.int64), _row_prefetch(1)


@instruction
def prefetch_far(typing, lanes, array, offset):  # type: ignore[no-untyped-def]
    """prefetch_far(lanes, array, offset): the same into the second-level cache, about FAR rows ahead."""
    return types.void(lanes, array, types.int64), _row_prefetch(2)


@instruction
def ask_ahead(typing, lanes, array, indices, e, last, stride, column):  # type: ignore[no-untyped-def]
    """ask_ahead(lanes, array, indices, e, last, stride, column): `prefetch` and `prefetch_far` of rows to be read soon.

    These are the rows, from indices[..] * stride + column on, of what comes NEAR and FAR behind e; `last` ends the
    indices. (A function in its place would count references to the arrays, a third of a kernel's time.)
    """

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        row_prefetch = types.void(signature.args[0], signature.args[1], types.int64)
        for level, ahead in ((2, FAR), (1, NEAR)):
            place = builder.add(args[3], ir.Constant(args[3].type, ahead))
            with builder.if_then(builder.icmp_signed("<", place, args[4])):
                row = builder.load(_llvm.address(context, builder, signature.args[2], args[2], place))
                row = row if row.type == args[5].type else builder.sext(row, args[5].type)
                offset = builder.add(builder.mul(row, args[5]), args[6])
                _row_prefetch(level)(context, builder, row_prefetch, (args[0], args[1], offset))
        return context.get_dummy_value()

    return types.void(lanes, array, indices, *[types.int64] * 4), generate


@instruction
def prefetch_item(typing, array, offset):  # type: ignore[no-untyped-def]
    """prefetch_item(array, offset): ask for the cache line of one item of a flat array of any kind."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        _llvm.prefetch(builder, _llvm.address(context, builder, signature.args[0], *args), 1)
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


# ---- arithmetic: vectors with vectors of the same width, or with a float32


def _operands(builder: Any, signature: Any, args: Any) -> list[Any]:
    lanes = signature.return_type.lanes
    return [
        _llvm.splat(builder, value, lanes) if kind == types.float32 else value
        for kind, value in zip(signature.args, args, strict=True)
    ]


def _pair_signature(a: Any, b: Any) -> Any:
    """Return the signature of an operation on two vectors, or on one and a scalar that becomes float32."""
    if not any(isinstance(kind, VectorType) for kind in (a, b)):
        return None
    result = a if isinstance(a, VectorType) else b
    return result(*(kind if isinstance(kind, VectorType) else types.float32 for kind in (a, b)))


def _define(symbol: Any, operation: str) -> None:
    @instruction
    def apply(typing, a, b):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return getattr(builder, operation)(*_operands(builder, signature, args), flags=FAST)

        return _pair_signature(a, b), generate

    @overload(symbol, inline="always")
    def choose(a, b):  # type: ignore[no-untyped-def]
        if isinstance(a, VectorType) or isinstance(b, VectorType):
            return lambda a, b: apply(a, b)
        return None


for _symbol, _operation in (
    (operator.add, "fadd"),
    (operator.iadd, "fadd"),
    (operator.sub, "fsub"),
    (operator.mul, "fmul"),
    (operator.imul, "fmul"),
    (operator.truediv, "fdiv"),
):
    _define(_symbol, _operation)


def _extreme(symbol: str) -> Callable[..., Any]:
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        a, b = _operands(builder, signature, args)
        return builder.select(builder.fcmp_ordered(symbol, a, b), b, a)

    return generate


@instruction
def maximum(typing, a, b):  # type: ignore[no-untyped-def]
    """Return the larger, lane by lane; NaN in `a` passes."""
    return _pair_signature(a, b), _extreme("<")


@instruction
def minimum(typing, a, b):  # type: ignore[no-untyped-def]
    """Return the smaller, lane by lane; NaN in `a` passes."""
    return _pair_signature(a, b), _extreme(">")


@instruction
def where_positive(typing, test, value):  # type: ignore[no-untyped-def]
    """Return value where test > 0, else 0."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        zero = _llvm.constant(FLOAT, signature.return_type.lanes, 0.0)
        return builder.select(builder.fcmp_ordered(">", args[0], zero), args[1], zero)

    return value(test, value), generate


@instruction
def total(typing, a):  # type: ignore[no-untyped-def]
    """Return the sum of all lanes, a float32."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        name = f"llvm.vector.reduce.fadd.v{signature.args[0].lanes}f32"
        return _llvm.call(builder, name, FLOAT, [ir.Constant(FLOAT, 0.0), args[0]], FAST)

    return types.float32(a), generate


@instruction
def largest_of(typing, a):  # type: ignore[no-untyped-def]
    """Return the largest of all lanes, a float32; lanes that are no numbers are passed over."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        name = f"llvm.vector.reduce.fmax.v{signature.args[0].lanes}f32"
        return _llvm.call(builder, name, FLOAT, [args[0]])

    return types.float32(a), generate
