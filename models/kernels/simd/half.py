"""Numbers of 16 bits in vectors: float16, in which features are stored on disk, and rounding to bfloat16."""

from __future__ import annotations

from llvmlite import ir
from numba import types

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import FLOAT, SHORT
from models.kernels.simd.vector import VectorType, instruction


@instruction
def load_half(typing, lanes, array, offset, count):  # type: ignore[no-untyped-def]
    """load_half(lanes, array, offset, count) -> vector: `vector.load` for float16 numbers in a flat int16 array."""
    fits = isinstance(array, types.Array) and array.ndim == 1 and array.dtype == types.int16
    assert fits, f"float16 numbers come as flat int16 arrays, not {array}"

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        width = signature.return_type.lanes
        raw = _llvm.load(context, builder, signature, args, SHORT)
        return builder.fpext(builder.bitcast(raw, ir.VectorType(ir.HalfType(), width)), ir.VectorType(FLOAT, width))

    return VectorType(lanes.count)(lanes, array, types.int64, types.int64), generate


@instruction
def round_to_bfloat16(typing, vector):  # type: ignore[no-untyped-def]
    """Return the vector with each float32 rounded to the nearest bfloat16, ties to even."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        return _llvm.widen(builder, _llvm.narrow(builder, args[0], lanes), lanes)

    return vector(vector), generate
