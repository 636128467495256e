"""Whether a node is in a list of neighbours, without a branch that depends on where it is."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types

from models.kernels.simd import _llvm
from models.kernels.simd.vector import instruction

SPAN = 32
"""Numbers that are compared at once: two registers of AVX-512, as many as most lists have."""


@instruction
def _is_in_span(typing, array, start, first, stop, number):  # type: ignore[no-untyped-def]
    """_is_in_span(array, start, first, stop, number): whether it is among array[start + first : start + stop].

    All of array[start : start + SPAN] is read.
    """

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kind = signature.args[0]
        item = context.get_value_type(kind.dtype)
        pointer = _llvm.address(context, builder, kind, args[0], args[1])
        pointer = builder.bitcast(pointer, ir.VectorType(item, SPAN).as_pointer())
        found = builder.load(pointer, align=kind.dtype.bitwidth // 8)
        narrow = ir.IntType(32)
        places = ir.Constant(ir.VectorType(narrow, SPAN), list(range(SPAN)))
        first, stop = (_llvm.splat(builder, builder.trunc(bound, narrow), SPAN) for bound in args[2:4])
        number = args[4] if item.width == 64 else builder.trunc(args[4], item)
        hits = builder.icmp_signed("==", found, _llvm.splat(builder, number, SPAN))
        hits = builder.and_(hits, builder.icmp_signed(">=", places, first))
        hits = builder.and_(hits, builder.icmp_signed("<", places, stop))
        return _llvm.call(builder, f"llvm.vector.reduce.or.v{SPAN}i1", ir.IntType(1), [hits])

    assert isinstance(array, types.Array)
    assert isinstance(array.dtype, types.Integer)
    return types.boolean(array, types.int64, types.int64, types.int64, types.int64), generate


@njit(inline="always")
def is_member(array, low, high, number):  # type: ignore[no-untyped-def]
    """Whether `number` is among array[low:high], integers that ascend."""
    start, count = low, high - low
    while count > SPAN:
        half = count >> 1
        start += half * np.int64(array[start + half] <= number)
        count -= half
    found = False
    if len(array) >= SPAN:
        # At the array's end the span begins earlier.
        begin = min(start, len(array) - SPAN)
        found = _is_in_span(array, begin, start - begin, start + count - begin, number)
    else:
        for at in range(start, start + count):
            found |= array[at] == number
    return found
