"""Numbers of 16 bits in vectors: float16, in which features are stored on disk, and rounding to bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import INT, SHORT
from models.kernels.simd.vector import VectorType

_instruction: Callable[[Callable[..., Any]], Callable[..., Any]] = intrinsic


@_instruction
def load_half(typing, lanes, array, offset, count):  # type: ignore[no-untyped-def]
    """load_half(lanes, array, offset, count) -> vector: `vector.load` for float16 numbers in a flat int16 array."""
    fits = isinstance(array, types.Array) and array.ndim == 1 and array.dtype == types.int16
    assert fits, f"float16 numbers come as flat int16 arrays, not {array}"

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        shape, width = signature.args[0], signature.return_type.lanes
        address = _llvm.address(context, builder, signature.args[1], args[1], args[2])
        pointer = builder.bitcast(address, ir.VectorType(SHORT, width).as_pointer())
        if shape.partly:
            zero = _llvm.constant(SHORT, width, 0)
            arguments = [pointer, ir.Constant(INT, 2), _llvm.first_lanes(builder, args[3], width), zero]
            raw = _llvm.call(builder, f"llvm.masked.load.v{width}i16.p0", zero.type, arguments)
        else:
            raw = builder.load(pointer, align=2)
        half = builder.bitcast(raw, ir.VectorType(ir.HalfType(), width))
        return builder.fpext(half, ir.VectorType(ir.FloatType(), width))

    return VectorType(lanes.count)(lanes, array, types.int64, types.int64), generate


@_instruction
def round_to_bfloat16(typing, vector):  # type: ignore[no-untyped-def]
    """Return the vector with each float32 rounded to the nearest bfloat16, ties to even."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        return _llvm.widen(builder, _llvm.narrow(builder, args[0], lanes), lanes)

    return vector(vector), generate
