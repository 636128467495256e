"""What loops that change rows of tables share: random bits, rows asked for ahead, and the step of a row by its rule.

A change of less than 1/256 of a number does not reach a bfloat16 that is rounded to the nearest; rounding up or down by
chance loses none on average (arXiv:1502.02551).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types

from models.kernels.simd import _llvm
from models.kernels.simd._llvm import BYTES, HAS_AVX512, INT, SHORT
from models.kernels.simd.vector import VectorType, instruction, load, prefetch, total, zeros

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


WHOLE_ROW = 128 if HAS_AVX512 else 32
"""Lanes of a row, or a part of it: three of them, a centre's, its change and a context's, stay in registers."""
SCRAMBLE = np.uint64(0x2545F4914F6CDD1D)
_TWELVE, _TWENTY_FIVE, _TWENTY_SEVEN = np.uint64(12), np.uint64(25), np.uint64(27)
_ONE = np.float32(1)


@njit(inline="always")
def following(noise):  # type: ignore[no-untyped-def]
    """Return the next state of xorshift64 (Marsaglia, 2003)."""
    noise = noise ^ (noise >> _TWELVE)
    noise = noise ^ (noise << _TWENTY_FIVE)
    return noise ^ (noise >> _TWENTY_SEVEN)


@njit(inline="always")
def ask_for(lanes, tile, parts, table, at):  # type: ignore[no-untyped-def]
    """Prefetch a row."""
    for part in range(parts):
        prefetch(lanes, table, at + part * tile)


@njit(cache=True, nogil=True)
def move_row(lanes, tile, width, table, row, gradient, moment, scalars, rate, constants, state):  # type: ignore[no-untyped-def]
    """Move a row of a table by its gradient (stride,), as `UpdateRule` says."""
    parts = len(gradient) // tile
    at = row * len(gradient)
    decay, second_decay, epsilon = constants[0], constants[1], constants[2]
    scale, fresh = rate, _ONE
    if scalars is not None:
        squares = zeros(lanes)
        for part in range(parts):
            column = part * tile
            columns = load(lanes, gradient, column, tile)
            squares = squares + columns * columns
        mean = total(squares) / np.float32(width)
        if moment is None:
            scalars[2 * row] += mean
            scale = rate / (np.float32(math.sqrt(scalars[2 * row])) + epsilon)
        else:
            scalars[2 * row] = second_decay * scalars[2 * row] + (_ONE - second_decay) * mean
            scalars[2 * row + 1] += _ONE
            steps = scalars[2 * row + 1]
            second = scalars[2 * row] / (_ONE - np.float32(second_decay**steps))
            scale = rate / (_ONE - np.float32(decay**steps)) / (np.float32(math.sqrt(second)) + epsilon)
            fresh = _ONE - decay
    scramble = state * SCRAMBLE
    for part in range(parts):
        column = part * tile
        step = load(lanes, gradient, column, tile)
        if moment is not None:
            step = load(lanes, moment, at + column, tile) * decay + step * fresh
            put(lanes, moment, at + column, step, scramble)
        scramble = following(scramble)
        put(lanes, table, at + column, load(lanes, table, at + column, tile) + step * scale, scramble)
