"""The loop of skip-gram's steps by rules that remember something of each row: see `train_pairs.py`."""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from models.kernels.simd.vector import load, store, total, zeros
from models.kernels.skipgram.loops import SCRAMBLE, following, set_products, set_slopes
from models.kernels.tables.rounding import put

_ONE = np.float32(1)


@njit(cache=True, nogil=True)
def train_by_rule(  # type: ignore[no-untyped-def]
    lanes,
    slots,
    tile,
    width,
    vertex,
    context,
    centres,
    contexts,
    negatives,
    rate,
    weight,
    noise,
    ahead,
    rows,
    slopes,
    vertex_moment,
    vertex_scalars,
    context_moment,
    context_scalars,
    constants,
    scratch,
):
    """Take the steps of pairs whose rows are moved by any rule: `train_parts`, with what is remembered of rows."""
    count, num_negatives = negatives.shape
    change, gradient = scratch[0], scratch[1]
    stride = len(change)
    parts = stride // tile
    state = np.uint64(1)
    if noise is not None:
        state = noise
    for i in range(count):
        centre = np.int64(centres[i])
        own = centre * stride
        soon = min(i + ahead, count - 1)
        set_products(lanes, tile, parts, vertex, context, centres, contexts, negatives, i, soon, rows, slopes)
        set_slopes(slots, slopes, num_negatives + 1, 1, _ONE, weight)
        for part in range(parts):
            column = part * tile
            store(lanes, change, column, zeros(lanes), tile)
        for k in range(num_negatives + 1):
            for part in range(parts):
                column = part * tile
                moved = load(lanes, context, rows[k] * stride + column, tile) * slopes[k]
                store(lanes, change, column, load(lanes, change, column, tile) + moved, tile)
                store(lanes, gradient, column, load(lanes, vertex, own + column, tile) * slopes[k], tile)
            state = following(state)
            move_row(
                lanes, tile, width, context, rows[k], gradient, context_moment, context_scalars, rate, constants, state
            )
        state = following(state)
        move_row(lanes, tile, width, vertex, centre, change, vertex_moment, vertex_scalars, rate, constants, state)


@njit(cache=True, nogil=True)
def move_row(lanes, tile, width, table, row, gradient, moment, scalars, rate, constants, state):  # type: ignore[no-untyped-def]
    """Move a row of a table by its gradient (stride,), as `Rule` says."""
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
