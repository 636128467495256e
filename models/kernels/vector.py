"""Vectors of floats in numba: one LLVM value `<lanes x float>`, kept in registers.

numba's own loops keep a row's accumulator in memory and test for aliasing on every row. Here an accumulator is a value:

    v = vectors(64)
    acc = v.zeros()
    for e in range(first, last):
        acc = acc + weight[e] * v.load(x, indices[e] * 64)
    v.store(y, row * 64, acc)

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

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, models, overload, register_model
from numpy.typing import NDArray
from torch import Tensor

LANES = (16, 32, 64, 128, 256)
"""Widths that kernels are compiled for; 256 float32 accumulators are half of AVX-512's registers."""
_FLOAT, _SHORT, _INT = ir.FloatType(), ir.IntType(16), ir.IntType(32)
_BYTES = {_FLOAT: 4, _SHORT: 2}
_FAST = ("contract", "reassoc", "nsz", "arcp")  # not nnan or ninf: infinities and NaN must pass
_LINE_BYTES = 64


class VectorType(types.Type):
    """numba's type of `<lanes x float>`."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        super().__init__(name=f"Vector({lanes})")


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: VectorType) -> None:
        super().__init__(manager, kind, ir.VectorType(_FLOAT, kind.lanes))  # type: ignore[no-untyped-call]


@dataclass(frozen=True)
class Vectors:
    """Functions for one width, to be called in numba."""

    zeros: Callable[..., Any]
    """zeros() -> vector."""
    splat: Callable[..., Any]
    """splat(x) -> vector with x in all lanes."""
    load: Callable[..., Any]
    """load(array, offset) -> vector."""
    load_part: Callable[..., Any]
    """load_part(array, offset, count) -> the first `count` lanes from memory, 0 in the others."""
    store: Callable[..., Any]
    """store(array, offset, vector)."""
    store_part: Callable[..., Any]
    """store_part(array, offset, vector, count): the first `count` lanes."""
    prefetch: Callable[..., Any]
    """prefetch(array, offset): ask for the cache lines of a row of this width."""


def storage(tensor: Tensor) -> NDArray[Any]:
    """Return a contiguous CPU tensor, float32 or bfloat16, as the flat array that kernels read and write."""
    flat = tensor.detach().reshape(-1)
    return flat.view(torch.uint16).numpy() if flat.dtype == torch.bfloat16 else flat.numpy()


def tiles(width: int) -> list[tuple[int, int, int]]:
    """Cut columns into (first column, lanes, columns used): the widest lanes first, at most the last one in part."""
    cut: list[tuple[int, int, int]] = []
    column = 0
    while column < width:
        left = width - column
        lanes = next((n for n in LANES if n >= left), LANES[-1])
        cut.append((column, lanes, min(lanes, left)))
        column += lanes
    return cut


# ---- code generation


def _address(context: Any, builder: Any, kind: Any, array: Any, offset: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [offset])


def _splat(builder: Any, scalar: Any, lanes: int) -> Any:
    kind = ir.VectorType(scalar.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, scalar, ir.Constant(_INT, 0))
    return builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(_INT, lanes), [0] * lanes))


def _constant(kind: Any, lanes: int, value: Any) -> Any:
    return ir.Constant(ir.VectorType(kind, lanes), [value] * lanes)


def _mask(builder: Any, count: Any, lanes: int) -> Any:
    numbers = ir.Constant(ir.VectorType(_INT, lanes), list(range(lanes)))
    return builder.icmp_unsigned("<", numbers, _splat(builder, builder.trunc(count, _INT), lanes))


def _call(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    kind = ir.FunctionType(result, [argument.type for argument in arguments])
    return builder.call(_function(builder, kind, name), arguments)


def _function(builder: Any, kind: Any, name: str) -> Any:
    return cgutils.get_or_insert_function(builder.module, kind, name)  # type: ignore[no-untyped-call]


def _element(kind: Any) -> Any:
    return _SHORT if kind.dtype == types.uint16 else _FLOAT


def _suffix(element: Any) -> str:
    return "i16" if element is _SHORT else "f32"


def _widen(builder: Any, raw: Any, lanes: int) -> Any:
    wide = builder.zext(raw, ir.VectorType(_INT, lanes))
    return builder.bitcast(builder.shl(wide, _constant(_INT, lanes, 16)), ir.VectorType(_FLOAT, lanes))


def _narrow(builder: Any, vector: Any, lanes: int) -> Any:
    """Round float32 to bfloat16, ties to even; NaN stays NaN."""
    bits = builder.bitcast(vector, ir.VectorType(_INT, lanes))
    even = builder.and_(builder.lshr(bits, _constant(_INT, lanes, 16)), _constant(_INT, lanes, 1))
    rounded = builder.add(bits, builder.add(even, _constant(_INT, lanes, 0x7FFF)))
    is_nan = builder.fcmp_unordered("uno", vector, vector)
    rounded = builder.select(is_nan, _constant(_INT, lanes, 0x7FC00000), rounded)
    return builder.trunc(builder.lshr(rounded, _constant(_INT, lanes, 16)), ir.VectorType(_SHORT, lanes))


def _is_storage(kind: Any) -> bool:
    return isinstance(kind, types.Array) and kind.ndim == 1 and kind.dtype in (types.float32, types.uint16)


@cache
def vectors(lanes: int) -> Vectors:
    """Return the functions for vectors of `lanes` floats."""
    vector_type, register = VectorType(lanes), ir.VectorType(_FLOAT, lanes)

    @intrinsic
    def zeros(typing):  # type: ignore[no-untyped-def]
        return vector_type(), lambda context, builder, signature, args: ir.Constant(register, [0.0] * lanes)

    @intrinsic
    def splat(typing, x):  # type: ignore[no-untyped-def]
        return vector_type(types.float32), lambda context, builder, signature, args: _splat(builder, args[0], lanes)

    @intrinsic
    def load(typing, array, offset):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            element = _element(signature.args[0])
            pointer = _address(context, builder, signature.args[0], *args)
            pointer = builder.bitcast(pointer, ir.VectorType(element, lanes).as_pointer())
            raw = builder.load(pointer, align=_BYTES[element])
            return _widen(builder, raw, lanes) if element is _SHORT else raw

        assert _is_storage(array), f"vectors are loaded from flat float32 or uint16 arrays, not {array}"
        return vector_type(array, types.int64), generate

    @intrinsic
    def load_part(typing, array, offset, count):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            element = _element(signature.args[0])
            kind = ir.VectorType(element, lanes)
            pointer = builder.bitcast(
                _address(context, builder, signature.args[0], args[0], args[1]), kind.as_pointer()
            )
            zero = _constant(element, lanes, 0 if element is _SHORT else 0.0)
            arguments = [pointer, ir.Constant(_INT, 2), _mask(builder, args[2], lanes), zero]
            raw = _call(builder, f"llvm.masked.load.v{lanes}{_suffix(element)}.p0", kind, arguments)
            return _widen(builder, raw, lanes) if element is _SHORT else raw

        assert _is_storage(array), f"vectors are loaded from flat float32 or uint16 arrays, not {array}"
        return vector_type(array, types.int64, types.int64), generate

    @intrinsic
    def store(typing, array, offset, vector):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            element = _element(signature.args[0])
            value = _narrow(builder, args[2], lanes) if element is _SHORT else args[2]
            pointer = _address(context, builder, signature.args[0], args[0], args[1])
            builder.store(
                value, builder.bitcast(pointer, value.type.as_pointer()), align=(element is _SHORT and 2) or 4
            )
            return context.get_dummy_value()

        assert _is_storage(array), f"vectors are stored to flat float32 or uint16 arrays, not {array}"
        return types.void(array, types.int64, vector_type), generate

    @intrinsic
    def store_part(typing, array, offset, vector, count):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            element = _element(signature.args[0])
            value = _narrow(builder, args[2], lanes) if element is _SHORT else args[2]
            pointer = _address(context, builder, signature.args[0], args[0], args[1])
            pointer = builder.bitcast(pointer, value.type.as_pointer())
            arguments = [value, pointer, ir.Constant(_INT, 2), _mask(builder, args[3], lanes)]
            _call(builder, f"llvm.masked.store.v{lanes}{_suffix(element)}.p0", ir.VoidType(), arguments)
            return context.get_dummy_value()

        assert _is_storage(array), f"vectors are stored to flat float32 or uint16 arrays, not {array}"
        return types.void(array, types.int64, vector_type, types.int64), generate

    @intrinsic
    def prefetch(typing, array, offset):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            for first in range(0, lanes, _LINE_BYTES // _BYTES[_element(signature.args[0])]):
                at = builder.add(args[1], ir.Constant(args[1].type, first))
                pointer = _address(context, builder, signature.args[0], args[0], at)
                pointer = builder.bitcast(pointer, ir.IntType(8).as_pointer())
                hints = [ir.Constant(_INT, number) for number in (0, 3, 1)]  # to read, keep close, data
                _call(builder, "llvm.prefetch.p0", ir.VoidType(), [pointer, *hints])
            return context.get_dummy_value()

        return types.void(array, types.int64), generate

    return Vectors(zeros, splat, load, load_part, store, store_part, prefetch)


# ---- arithmetic, for all widths


def _pairwise(operation: str) -> Callable[..., Any]:
    @intrinsic
    def apply(typing, a, b):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            lanes = signature.return_type.lanes
            operands = [
                _splat(builder, value, lanes) if kind == types.float32 else value
                for kind, value in zip(signature.args, args, strict=True)
            ]
            return getattr(builder, operation)(*operands, flags=_FAST)

        if not any(isinstance(kind, VectorType) for kind in (a, b)):
            return None
        result = a if isinstance(a, VectorType) else b
        operands = [kind if isinstance(kind, VectorType) else types.float32 for kind in (a, b)]
        return result(*operands), generate

    return apply


def _define(symbol: Any, operation: str) -> None:
    apply = _pairwise(operation)

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


@intrinsic
def maximum(typing, a, b):  # type: ignore[no-untyped-def]
    """Return the larger of two vectors, lane by lane; NaN in `a` passes."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.select(builder.fcmp_ordered("<", args[0], args[1]), args[1], args[0])

    return a(a, a), generate


@intrinsic
def where_positive(typing, test, value):  # type: ignore[no-untyped-def]
    """Return value where test > 0, else 0."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        zero = ir.Constant(args[0].type, [0.0] * signature.return_type.lanes)
        return builder.select(builder.fcmp_ordered(">", args[0], zero), args[1], zero)

    return value(test, value), generate


@intrinsic
def total(typing, a):  # type: ignore[no-untyped-def]
    """Return the sum of all lanes, a float32."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kind = ir.FunctionType(_FLOAT, [_FLOAT, args[0].type])
        name = f"llvm.vector.reduce.fadd.v{signature.args[0].lanes}f32"
        return builder.call(_function(builder, kind, name), [ir.Constant(_FLOAT, 0.0), args[0]], fastmath=_FAST)

    return types.float32(a), generate


@intrinsic
def _floor(typing, a):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _call(builder, f"llvm.floor.v{signature.return_type.lanes}f32", args[0].type, [args[0]])

    return a(a), generate


@intrinsic
def _times_power_of_two(typing, a, exponent):  # type: ignore[no-untyped-def]
    """Return a * 2^exponent for whole exponents from -126 to 127."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        whole = builder.fptosi(args[1], ir.VectorType(_INT, lanes))
        bits = builder.shl(builder.add(whole, _constant(_INT, lanes, 127)), _constant(_INT, lanes, 23))
        return builder.fmul(args[0], builder.bitcast(bits, args[0].type), flags=_FAST)

    return a(a, a), generate


_LOG2_E = np.float32(1.4426950408889634)
# Minimax for 2^f on [0, 1), relative error below 3e-7.
_P5, _P4, _P3 = np.float32(0.0018775767), np.float32(0.0089893397), np.float32(0.055826318)
_P2, _P1, _P0 = np.float32(0.24015361), np.float32(0.69315308), np.float32(0.99999994)
_LOW, _HIGH = np.float32(-126.0), np.float32(127.0)


@njit(inline="always")
def exp(x, v):  # type: ignore[no-untyped-def]
    """Return e^x by lanes, `v` the Vectors' splat: 0 becomes 1, below -87 about 1e-38, above 88 about 2e38."""
    power = x * _LOG2_E
    power = maximum(power, v(_LOW))  # type: ignore[call-arg]
    power = v(np.float32(0)) - maximum(v(np.float32(0)) - power, v(-_HIGH))
    whole = _floor(power)
    f = power - whole
    p = f * _P5 + v(_P4)
    p = p * f + v(_P3)
    p = p * f + v(_P2)
    p = p * f + v(_P1)
    p = p * f + v(_P0)
    return _times_power_of_two(p, whole)
