"""Exponentials and logarithms of vectors."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import INT
from models.kernels.simd.vector import FAST, instruction, maximum, minimum


@instruction
def _floor(typing, a):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return _llvm.call(builder, f"llvm.floor.v{signature.return_type.lanes}f32", args[0].type, [args[0]])

    return a(a), generate


@instruction
def _times_power_of_two(typing, a, exponent):  # type: ignore[no-untyped-def]
    """Return a * 2^exponent for whole exponents from -126 to 127."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        whole = builder.fptosi(args[1], ir.VectorType(INT, lanes))
        exponents = builder.add(whole, _llvm.constant(INT, lanes, 127))
        bits = builder.shl(exponents, _llvm.constant(INT, lanes, 23))
        return builder.fmul(args[0], builder.bitcast(bits, args[0].type), flags=FAST)

    return a(a, a), generate


_LOG2_E, _HALF = np.float32(1.4426950408889634), np.float32(0.5)
# Minimax for (2^f - 1) / f with f from -1/2 to 1/2, to 9e-8 of 2^f: 2^0 is 1 and errors have no sign that would add up.
_P5, _P4, _P3 = np.float32(0.0013264730), np.float32(0.0096715130), np.float32(0.055507336)
_P2, _P1, _P0 = np.float32(0.24022242), np.float32(0.69314700), np.float32(1)
_LOW, _HIGH = np.float32(-126), np.float32(127)


@njit(inline="always")
def exp(x):  # type: ignore[no-untyped-def]
    """Return e^x by lanes: exactly 1 of 0, about 1e-38 below -87, about 2e38 above 88."""
    power = minimum(maximum(x * _LOG2_E, _LOW), _HIGH)
    whole = _floor(power + _HALF)
    f = power - whole
    p = f * _P5 + _P4
    p = p * f + _P3
    p = p * f + _P2
    p = p * f + _P1
    p = p * f + _P0
    return _times_power_of_two(p, whole)


@instruction
def _exponent(typing, a):  # type: ignore[no-untyped-def]
    """Return k of a = 2^k f, f from the root of 1/2 to that of 2."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        whole = _llvm.exponent(builder, args[0], signature.return_type.lanes)
        return builder.sitofp(whole, args[0].type)

    return a(a), generate


@instruction
def _mantissa(typing, a):  # type: ignore[no-untyped-def]
    """Return f of a = 2^k f."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        whole = builder.shl(_llvm.exponent(builder, args[0], lanes), _llvm.constant(INT, lanes, 23))
        return builder.bitcast(builder.sub(builder.bitcast(args[0], whole.type), whole), args[0].type)

    return a(a), generate


_LOG_2 = np.float32(0.6931471805599453)
_ONE, _TWO = np.float32(1), np.float32(2)
_THIRD, _FIFTH, _SEVENTH, _NINTH = (np.float32(1 / number) for number in (3, 5, 7, 9))


@njit(inline="always")
def log(x):  # type: ignore[no-untyped-def]
    """Return the logarithm of finite x >= 0 by lanes, by atanh's series: 0 becomes -88."""
    f = _mantissa(x)
    s = (f - _ONE) / (f + _ONE)
    q = s * s
    p = q * _NINTH + _SEVENTH
    p = p * q + _FIFTH
    p = p * q + _THIRD
    p = p * q + _ONE
    return _exponent(x) * _LOG_2 + s * p * _TWO
