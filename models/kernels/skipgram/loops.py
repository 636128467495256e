"""The loops of skip-gram's steps by SGD: see `models.kernels.skipgram.train_pairs`.

Columns are cut into `stride // tile` parts of `tile` each. Loops count parts, as numba counts the turns of a
`range(0, stride, tile)` by a division, 20 cycles or more, and there is such a loop for every row.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.exponentials import exp
from models.kernels.simd.vector import Lanes, load, prefetch, prefetch_far, splat, store, total, zeros
from models.kernels.tables.row_steps import SCRAMBLE, ask_for, following, put

SLOTS = Lanes(8)
"""Slopes that are made at once."""
_SLOTS_COUNT = 8
_ONE, _MINUS_ONE = np.float32(1), np.float32(-1)
_ZERO, _LAST = np.int32(0), np.int32(2048)
_MOST, _STEPS = np.float32(16), np.float32(64)
_CHANCES = (1 / (1 + np.exp(-np.arange(-16, 16 + 2 / 64, 1 / 64)))).astype(np.float32)
"""The logistic function from -16 to 16, in steps of 1/64: 8 KB, in the first-level cache."""


@njit(inline="always")
def _chance(x):  # type: ignore[no-untyped-def]
    """Return the logistic function of a float32, between entries of the table along a line: to 3e-6.

    A product's way to the step of its row is as long as this takes, half as long as by an exponential.
    """
    place = (min(max(x, -_MOST), _MOST) + _MOST) * _STEPS
    low = min(max(np.int32(place), _ZERO), _LAST)  # of NaN, which passes, the whole part is any number
    return _CHANCES[low] + (_CHANCES[low + 1] - _CHANCES[low]) * (place - np.float32(low))


@njit(inline="always")
def _product(lanes, tile, parts, a, at, b, other):  # type: ignore[no-untyped-def]
    """Return the dot product of two rows."""
    sums = zeros(lanes)
    for part in range(parts):
        sums = sums + load(lanes, a, at + part * tile, tile) * load(lanes, b, other + part * tile, tile)
    return total(sums)


@njit(inline="always")
def _ask_far_for(lanes, tile, parts, table, at):  # type: ignore[no-untyped-def]
    """Prefetch a row into the second-level cache."""
    for part in range(parts):
        prefetch_far(lanes, table, at + part * tile)


@njit(inline="always")
def _set_slopes(slots, slopes, count, positives, rate, weight):  # type: ignore[no-untyped-def]
    """Replace products by rate (1 - s) for the first ones, those of positives, and by -rate w s for the others."""
    one = splat(slots, _ONE)
    for block in range((count + _SLOTS_COUNT - 1) // _SLOTS_COUNT):
        products = load(slots, slopes, block * _SLOTS_COUNT, _SLOTS_COUNT)
        store(slots, slopes, block * _SLOTS_COUNT, one / (exp(products * _MINUS_ONE) + one), _SLOTS_COUNT)
    for number in range(positives):
        slopes[number] = rate * (_ONE - slopes[number])
    for number in range(positives, count):
        slopes[number] *= -rate * weight


@njit(cache=True, nogil=True)
def train_whole_rows(  # type: ignore[no-untyped-def]
    lanes, width, vertex, context, centres, contexts, negatives, rate, weight, noise, ahead, far
):
    """Take the steps of pairs whose rows fit into registers: a row of contexts is read and written once.

    Args:
        ahead: pairs ahead at which rows are asked for.
        far: likewise into the second-level cache; None: they are there, or in the third.
    """
    count, num_negatives = negatives.shape
    state = np.uint64(1)
    if noise is not None:
        state = noise
    for i in range(count):
        soon = min(i + ahead, count - 1)
        later = soon
        if far is not None:
            later = min(i + far, count - 1)
            prefetch_far(lanes, vertex, np.int64(centres[later]) * width)
        prefetch(lanes, vertex, np.int64(centres[soon]) * width)
        centre_at = np.int64(centres[i]) * width
        centre, change = load(lanes, vertex, centre_at, width), zeros(lanes)
        for k in range(-1, num_negatives):
            if k < 0:
                at, next_at, far_at = np.int64(contexts[i]), np.int64(contexts[soon]), np.int64(contexts[later])
            else:
                at, next_at = np.int64(negatives[i, k]), np.int64(negatives[soon, k])
                far_at = np.int64(negatives[later, k])
            at *= width
            row = load(lanes, context, at, width)
            chance = _chance(total(row * centre))
            prefetch(lanes, context, next_at * width)
            if far is not None:
                prefetch_far(lanes, context, far_at * width)
            slope = rate * (_ONE - chance) if k < 0 else -rate * weight * chance
            change = change + row * slope
            if noise is not None:
                state = following(state)
            put(lanes, context, at, row + centre * slope, state * SCRAMBLE)
        if noise is not None:
            state = following(state)
        # Read again: one of the contexts may have been this very row.
        put(lanes, vertex, centre_at, load(lanes, vertex, centre_at, width) + change, state * SCRAMBLE)


@njit(cache=True, nogil=True)
def train_parts(  # type: ignore[no-untyped-def]
    lanes, slots, tile, stride, vertex, context, centres, contexts, negatives, rate, weight, noise, ahead, rows, slopes
):
    """Take the steps of pairs whose rows are wider: all products of a pair first, then its steps, part by part.

    Args:
        ahead: pairs ahead at which rows are asked for.
        rows: int64 (K + 1,), room to work in: the rows of the contexts.
        slopes: float32 (K + 1 and more,), likewise.
    """
    count, num_negatives = negatives.shape
    parts = stride // tile
    state = np.uint64(1)
    if noise is not None:
        state = noise
    for i in range(count):
        centre_at = np.int64(centres[i]) * stride
        soon = min(i + ahead, count - 1)
        ask_for(lanes, tile, parts, vertex, np.int64(centres[soon]) * stride)
        for k in range(num_negatives + 1):
            if k == 0:
                row, next_row = np.int64(contexts[i]), np.int64(contexts[soon])
            else:
                row, next_row = np.int64(negatives[i, k - 1]), np.int64(negatives[soon, k - 1])
            rows[k] = row
            slopes[k] = _product(lanes, tile, parts, vertex, centre_at, context, row * stride)
            ask_for(lanes, tile, parts, context, next_row * stride)
        _set_slopes(slots, slopes, num_negatives + 1, 1, rate, weight)
        for part in range(parts):
            column = part * tile
            centre, change = load(lanes, vertex, centre_at + column, tile), zeros(lanes)
            for k in range(num_negatives + 1):
                at = rows[k] * stride + column
                columns = load(lanes, context, at, tile)
                change = change + columns * slopes[k]
                if noise is not None:
                    state = following(state)
                put(lanes, context, at, columns + centre * slopes[k], state * SCRAMBLE)
            if noise is not None:
                state = following(state)
            # Read again: one of the contexts may have been this very row.
            put(
                lanes,
                vertex,
                centre_at + column,
                load(lanes, vertex, centre_at + column, tile) + change,
                state * SCRAMBLE,
            )


@njit(cache=True, nogil=True)
def train_groups(  # type: ignore[no-untyped-def]
    lanes, slots, tile, stride, vertex, context, centres, contexts, negatives, rate, weight, noise,
    rows, slopes, group, changes,
):  # fmt: skip
    """Do what `train_parts` does, with negatives shared by `group` pairs: all their slopes first, then the steps.

    Args:
        rows: int64 (group + K,), room to work in.
        slopes: float32 (group * (1 + K) and more,), likewise: of the positives, then of each negative with each pair.
        changes: float32 (group * tile,), likewise: of the centres.
    """
    count, num_negatives = len(centres), negatives.shape[1]
    parts = stride // tile
    state = np.uint64(1)
    if noise is not None:
        state = noise
    for low in range(0, count, group):
        pairs, number = min(group, count - low), low // group
        for i in range(low + pairs, min(low + pairs + group, count)):
            _ask_far_for(lanes, tile, parts, vertex, np.int64(centres[i]) * stride)
            _ask_far_for(lanes, tile, parts, context, np.int64(contexts[i]) * stride)
        if low + pairs < count:
            for k in range(num_negatives):
                _ask_far_for(lanes, tile, parts, context, np.int64(negatives[number + 1, k]) * stride)
        for i in range(pairs):
            rows[i] = np.int64(centres[low + i]) * stride
            slopes[i] = _product(lanes, tile, parts, vertex, rows[i], context, np.int64(contexts[low + i]) * stride)
        for k in range(num_negatives):
            at = np.int64(negatives[number, k]) * stride
            rows[pairs + k] = at
            for i in range(pairs):
                slopes[(k + 1) * pairs + i] = _product(lanes, tile, parts, vertex, rows[i], context, at)
        _set_slopes(slots, slopes, pairs * (num_negatives + 1), pairs, rate, weight)
        for part in range(parts):
            column = part * tile
            for i in range(pairs):
                at = np.int64(contexts[low + i]) * stride + column
                row = load(lanes, context, at, tile)
                store(lanes, changes, i * tile, row * slopes[i], tile)
                if noise is not None:
                    state = following(state)
                moved = row + load(lanes, vertex, rows[i] + column, tile) * slopes[i]
                put(lanes, context, at, moved, state * SCRAMBLE)
            for k in range(num_negatives):
                at = rows[pairs + k] + column
                row, moved = load(lanes, context, at, tile), zeros(lanes)
                for i in range(pairs):
                    slope = slopes[(k + 1) * pairs + i]
                    moved = moved + load(lanes, vertex, rows[i] + column, tile) * slope
                    store(lanes, changes, i * tile, load(lanes, changes, i * tile, tile) + row * slope, tile)
                if noise is not None:
                    state = following(state)
                put(lanes, context, at, load(lanes, context, at, tile) + moved, state * SCRAMBLE)
            for i in range(pairs):
                at = rows[i] + column
                if noise is not None:
                    state = following(state)
                moved = load(lanes, vertex, at, tile) + load(lanes, changes, i * tile, tile)
                put(lanes, vertex, at, moved, state * SCRAMBLE)
