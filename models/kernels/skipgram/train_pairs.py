"""Skip-gram with negative sampling: one pass over pairs that reads and changes the rows of two tables in place.

For a pair (u, v) with negatives n_1..n_K the objective is log s(U_u . C_v) + w sum_k log s(-U_u . C_{n_k}), s the
logistic function (Mikolov and others, arXiv:1310.4546, equation 4; LINE, arXiv:1503.03578, equation 7; w is 1 there and
GraphVite's negative_weight, arXiv:1903.00757). A pair's context rows move by their gradients, then the centre's row. A
row that is twice among them moves by both slopes; where rows fit into registers, the second is that of the moved row.
Threads may work on the same tables without locks (Hogwild, arXiv:1106.5730): results then differ from run to run. One
thread, or threads whose rows are disjoint, give the same bits always.

No gradient is stored: a sample costs its K + 2 rows read and written once. Columns are cut into `stride // tile` parts
of `tile` each. Loops count parts, as numba counts the turns of a `range(0, stride, tile)` by a division, 20 cycles or
more, and there is such a loop for every row.
"""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.kernels.simd.exponentials import exp
from models.kernels.simd.vector import Lanes, load, prefetch, prefetch_far, splat, store, total, zeros
from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.row_steps import SCRAMBLE, WHOLE_ROW, ask_for, following, put
from models.kernels.tables.row_tables import RowTable

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
    sums = zeros(lanes)
    for part in range(parts):
        sums = sums + load(lanes, a, at + part * tile, tile) * load(lanes, b, other + part * tile, tile)
    return total(sums)


@njit(inline="always")
def _ask_far_for(lanes, tile, parts, table, at):  # type: ignore[no-untyped-def]
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
            moved = load(lanes, vertex, centre_at + column, tile) + change
            put(lanes, vertex, centre_at + column, moved, state * SCRAMBLE)


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


_ROWS_AHEAD_FLOATS = 256
"""Pairs as many as make so many columns, and at least two: their rows are on their way meanwhile."""
_FAR_AHEAD = 6
"""Pairs, where tables are larger than the last cache: memory's latency is longer than the first level can hide."""
_USUAL_CACHE = 32 << 20


def train_pairs(
    vertex: RowTable,
    context: RowTable,
    centres: NDArray[Any],
    contexts: NDArray[Any],
    negatives: NDArray[Any],
    *,
    rate: float,
    group: int = 1,
    negative_weight: float = 1.0,
    noise: int = 1,
) -> None:
    """Take one step for each pair, or for each group of pairs, one after the other.

    Args:
        vertex: rows of centres.
        context: rows of contexts; the same table for proximity of first order.
        centres: rows of `vertex`, int32 or int64 (n,).
        contexts: rows of `context` (n,).
        negatives: rows of `context` (n, K); with `group` G (n / G rounded up, K): row g is that of pairs g G to
            (g + 1) G - 1, and its rows of `context` move once for all of them.
        rate: learning rate.
        group: pairs that share negatives: faster, as these are read once, and a little worse.
        negative_weight: w.
        noise: seed of the rounding of bfloat16 tables, above 0; another one for every call.
    """
    state = np.uint64(noise) if vertex.precision == "bfloat16" else None
    tables, pairs = (vertex.values, context.values), (centres, contexts)
    numbers = (np.float32(rate), np.float32(negative_weight), state)
    stride = vertex.stride
    ahead = max(2, _ROWS_AHEAD_FLOATS // stride)
    if group == 1 and stride <= WHOLE_ROW:
        far = _FAR_AHEAD if vertex.values.nbytes + context.values.nbytes > last_cache_bytes() else None
        train_whole_rows(Lanes(stride), stride, *tables, *pairs, negatives, *numbers, ahead, far)
        return
    lanes, slots = Lanes(min(stride & -stride, WHOLE_ROW)), negatives.shape[1] + group
    room = np.zeros(slots, np.int64), np.zeros(-(-group * slots // SLOTS.count) * SLOTS.count, np.float32)
    arguments = (lanes, SLOTS, lanes.count, stride, *tables, *pairs, negatives, *numbers)
    if group == 1:
        train_parts(*arguments, ahead, *room)
    else:
        train_groups(*arguments, *room, group, np.zeros(group * lanes.count, np.float32))


@cache
def last_cache_bytes() -> int:
    """Return the size of the processor's largest cache; 32 MiB where the machine does not tell."""
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    with contextlib.suppress(OSError, ValueError):
        return max((int(size.read_text().strip().removesuffix("K")) << 10 for size in sizes), default=_USUAL_CACHE)
    return _USUAL_CACHE


def pair_loss(
    vertex: RowTable | DeviceTable,
    context: RowTable | DeviceTable,
    centres: NDArray[Any],
    contexts: NDArray[Any],
    negatives: NDArray[Any],
    negative_weight: float = 1.0,
) -> float:
    """Return the mean of -log s(U_u . C_v) - w sum_k log s(-U_u . C_{n_k}) over pairs, given as to `train_pairs`."""
    centre_rows = vertex.read(centres)
    positive = np.einsum("nd,nd->n", centre_rows, context.read(contexts))
    negative = np.einsum("nd,nkd->nk", centre_rows, context.read(negatives))
    losses = np.logaddexp(0, -positive) + negative_weight * np.logaddexp(0, negative).sum(1)
    return float(losses.mean())
