"""What loops that change rows of tables share: random bits, rows asked for ahead, and the step of a row by its rule."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from models.kernels.simd._llvm import HAS_AVX512
from models.kernels.simd.vector import load, prefetch, total, zeros
from models.kernels.tables.rounding import put

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
