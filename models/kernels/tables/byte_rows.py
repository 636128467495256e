"""Rows of numbers of 8 and 16 bits. Those of 8 have a scale of their own: x_d = scale * q_d, q_d from -127 to 127.

A row of D numbers is D + 4 bytes: the numbers, and the scale as float32 behind them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numpy.typing import NDArray

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import BYTE, FLOAT, SHORT
from models.kernels.simd.vector import VectorType, instruction

SCALE_BYTES = 4
_LARGEST = 127


def pack_rows(rows: NDArray[np.floating[Any]]) -> NDArray[np.int8]:
    """Return float rows (n, D) as int8 (n, D + 4): each number to the nearest step of its row's scale, max |x| / 127.

    Raises ValueError: a number is NaN or infinite.
    """
    values = rows.astype(np.float32)
    scale = np.abs(values).max(axis=1, initial=0) / np.float32(_LARGEST)
    if not np.isfinite(scale).all():
        raise ValueError("rows hold NaN or infinite numbers, which have no steps")
    steps = values / np.where(scale > 0, scale, np.float32(1))[:, None]
    packed = np.empty((len(rows), rows.shape[1] + SCALE_BYTES), np.int8)
    packed[:, :-SCALE_BYTES] = np.rint(steps)
    packed[:, -SCALE_BYTES:] = scale.astype(np.float32)[:, None].view(np.int8)
    return packed


@instruction
def load_bytes(typing, lanes, array, offset, count, scale):  # type: ignore[no-untyped-def]
    """load_bytes(lanes, array, offset, count, scale) -> vector: `vector.load` of 8-bit numbers, times their scale.

    `array` is flat int8; the scale is the float32 at array[scale].
    """
    fits = isinstance(array, types.Array) and array.ndim == 1 and array.dtype == types.int8
    assert fits, f"8-bit numbers come as flat int8 arrays, not {array}"

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        width = signature.return_type.lanes
        numbers = builder.sitofp(_llvm.load(context, builder, signature, args, BYTE), ir.VectorType(FLOAT, width))
        place = _llvm.address(context, builder, signature.args[1], args[1], args[4])
        scale = builder.load(builder.bitcast(place, FLOAT.as_pointer()), align=1)
        return builder.fmul(numbers, _llvm.splat(builder, scale, width))

    return VectorType(lanes.count)(lanes, array, types.int64, types.int64, types.int64), generate


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
