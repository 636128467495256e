"""Rows of bfloat16 tables that take many small changes: rounded up or down by chance, so that none is lost on average.

A change of less than 1/256 of a number does not reach it where it is rounded to the nearest; stochastic rounding keeps
the mean exact (arXiv:1502.02551).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import BYTES, INT, SHORT
from models.kernels.simd.vector import VectorType, instruction

_ODD = 0x9E3779B1  # 2^32 over the golden ratio


@instruction
def put(typing, lanes, array, offset, vector, noise):  # type: ignore[no-untyped-def]
    """put(lanes, array, offset, vector, noise): store all lanes, in bfloat16 rounded by chance.

    `noise` is a random uint64, another one for every row; float32 arrays do not read it.
    """

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kind, width = signature.args[1], signature.args[3].lanes
        element = _llvm.element(kind)
        value = _round(builder, args[3], args[4], width) if element is SHORT else args[3]
        pointer = _llvm.vector_address(context, builder, kind, args[1], args[2], width)
        builder.store(value, pointer, align=BYTES[element])
        return context.get_dummy_value()

    return types.void(lanes, array, types.int64, VectorType(lanes.count), types.uint64), generate


def _round(builder: Any, vector: Any, noise: Any, lanes: int) -> Any:
    """Add 16 random bits below those that stay, and cut. Infinities stay what they are: they have no bits below."""
    low = _llvm.splat(builder, builder.trunc(noise, INT), lanes)
    high = builder.trunc(builder.lshr(noise, ir.Constant(noise.type, 32)), INT)
    high = _llvm.splat(builder, builder.or_(high, ir.Constant(INT, 1)), lanes)
    numbers = ir.Constant(ir.VectorType(INT, lanes), [_ODD * lane % 2**32 for lane in range(lanes)])
    # Two products: by one alone, neighbouring lanes of a row would be a constant apart.
    mixed = builder.mul(builder.add(numbers, low), high)
    mixed = builder.xor(mixed, builder.lshr(mixed, _llvm.constant(INT, lanes, 15)))
    mixed = builder.mul(mixed, _llvm.constant(INT, lanes, 0x2C1B3C6D))
    random = builder.lshr(mixed, _llvm.constant(INT, lanes, 16))
    bits = builder.add(builder.bitcast(vector, ir.VectorType(INT, lanes)), random)
    return builder.trunc(builder.lshr(bits, _llvm.constant(INT, lanes, 16)), ir.VectorType(SHORT, lanes))
