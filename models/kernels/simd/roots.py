"""Reciprocal roots by a guess, where the processor has one."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import FLOAT, HAS_AVX512, INT
from models.kernels.simd.vector import FAST, instruction

LEAST = 1.1754944e-38
"""The smallest normal float32, which is added to squares: 0 has no reciprocal root."""
REGISTER = 16
"""Lanes of a register of AVX-512."""


def guess_reciprocal_root(builder: Any, vector: Any) -> Any:
    """Return 1 / sqrt(x) of normal x > 0 to 14 bits; of registers of AVX-512 only."""
    undefined = ir.Constant(vector.type, ir.Undefined)
    parts = []
    for first in range(0, vector.type.count, REGISTER):
        places = ir.Constant(ir.VectorType(INT, REGISTER), list(range(first, first + REGISTER)))
        parts.append(_guess(builder, builder.shuffle_vector(vector, undefined, places)))
    while len(parts) > 1:
        size = 2 * parts[0].type.count
        places = ir.Constant(ir.VectorType(INT, size), list(range(size)))
        parts = [builder.shuffle_vector(a, b, places) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _guess(builder: Any, register: Any) -> Any:
    every = ir.Constant(ir.IntType(REGISTER), -1)
    name = "llvm.x86.avx512.rsqrt14.ps.512"
    return _llvm.call(builder, name, register.type, [register, ir.Constant(register.type, ir.Undefined), every])


@instruction
def rough_reciprocal_root(typing, a):  # type: ignore[no-untyped-def]
    """rough_reciprocal_root(a) -> 1 / sqrt(a) of normal a > 0, lane by lane, to 14 bits or better."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        if HAS_AVX512 and lanes % REGISTER == 0:
            return guess_reciprocal_root(builder, args[0])
        root = _llvm.call(builder, f"llvm.sqrt.v{lanes}f32", args[0].type, [args[0]])
        return builder.fdiv(_llvm.constant(FLOAT, lanes, 1.0), root, flags=FAST)

    return a(a), generate
