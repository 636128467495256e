"""Skip-gram with negative sampling: one pass over pairs that reads and changes the rows of two tables in place.

For a pair (u, v) with negatives n_1..n_K the objective is log s(U_u . C_v) + w sum_k log s(-U_u . C_{n_k}), s the
logistic function (Mikolov and others, arXiv:1310.4546, equation 4; LINE, arXiv:1503.03578, equation 7; w is 1 there and
GraphVite's negative_weight, arXiv:1903.00757). Each context row moves by its gradient at once, the centre's row after
its pair. Threads may work on the same tables without locks (Hogwild, arXiv:1106.5730): results then differ from run to
run. One thread, or threads whose rows are disjoint, give the same bits always.

No gradient is stored and no dot product leaves the registers: a sample costs its K + 2 rows read and written once.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import binding
from numba import njit
from numpy.typing import NDArray

from models.kernels.device_tables import DeviceTable
from models.kernels.exponentials import exp
from models.kernels.rounding import put
from models.kernels.row_layout import Rule
from models.kernels.row_tables import RowTable
from models.kernels.vector import Lanes, load, prefetch, prefetch_far, splat, store, total, zeros

PAIRS_AHEAD = 2
"""Pairs that the kernels look ahead: their rows, 7 a pair with 5 negatives, are on their way meanwhile."""
_WIDEST = 128 if binding.get_host_cpu_features().get("avx512f") else 32
"""Lanes of a part of a row: three of them, a centre's, its change and a context's, stay in registers."""
_SLOTS_COUNT = 8
_SLOTS = Lanes(_SLOTS_COUNT)
_ONE, _MINUS_ONE = np.float32(1), np.float32(-1)
_TWELVE, _TWENTY_FIVE, _TWENTY_SEVEN = np.uint64(12), np.uint64(25), np.uint64(27)
_SCRAMBLE = np.uint64(0x2545F4914F6CDD1D)


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
    lanes = _lanes(vertex.stride)
    state = np.uint64(noise) if vertex.precision == "bfloat16" else None
    tables, pairs = (vertex.values, context.values), (centres, contexts)
    numbers = (np.float32(rate), np.float32(negative_weight), state)
    rule, slots = vertex.rule, negatives.shape[1] + group
    samples = np.zeros(slots, np.int64), np.zeros(-(-group * slots // _SLOTS.count) * _SLOTS.count, np.float32)
    if rule.name == "sgd" and group == 1:
        _train(lanes, _SLOTS, lanes.count, vertex.stride, *tables, *pairs, negatives, *numbers, *samples)
    elif rule.name == "sgd":
        changes = np.zeros(group * lanes.count, np.float32)
        _train_groups(
            lanes, _SLOTS, lanes.count, vertex.stride, *tables, *pairs, negatives, *numbers, *samples, group, changes
        )
    else:
        negatives = np.repeat(negatives, group, 0)[: len(centres)]
        states = (vertex.moment, vertex.scalars, context.moment, context.scalars)
        constants = np.array([rule.decay, rule.second_decay, rule.epsilon], np.float32)
        scratch = np.zeros((2, vertex.stride), np.float32)
        _train_by_rule(
            lanes,
            _SLOTS,
            lanes.count,
            vertex.width,
            *tables,
            *pairs,
            negatives,
            *numbers,
            *samples,
            *states,
            constants,
            scratch,
        )


def pair_loss(
    vertex: RowTable | DeviceTable,
    context: RowTable | DeviceTable,
    centres: NDArray[Any],
    contexts: NDArray[Any],
    negatives: NDArray[Any],
    negative_weight: float = 1.0,
) -> float:
    """Return the mean of -log s(U_u . C_v) - w sum_k log s(-U_u . C_{n_k}) over pairs, given as to `train_pairs`."""
    own = vertex.read(centres)
    positive = np.einsum("nd,nd->n", own, context.read(contexts))
    negative = np.einsum("nd,nkd->nk", own, context.read(negatives))
    losses = np.logaddexp(0, -positive) + negative_weight * np.logaddexp(0, negative).sum(1)
    return float(losses.mean())


def _lanes(stride: int) -> Lanes:
    """Return the widest vectors, of at most `_WIDEST` lanes, that cut a row without rest."""
    return Lanes(min(stride & -stride, _WIDEST))


@njit(cache=True, nogil=True)
def _next(noise):  # type: ignore[no-untyped-def]
    """Return the next state of xorshift64 (Marsaglia, 2003)."""
    noise = noise ^ (noise >> _TWELVE)
    noise = noise ^ (noise << _TWENTY_FIVE)
    return noise ^ (noise >> _TWENTY_SEVEN)


@njit(cache=True, nogil=True)
def _product(lanes, tile, stride, a, at, b, other):  # type: ignore[no-untyped-def]
    """Return the dot product of two rows."""
    product = zeros(lanes)
    for column in range(0, stride, tile):
        product = product + load(lanes, a, at + column, tile) * load(lanes, b, other + column, tile)
    return total(product)


@njit(cache=True, nogil=True)
def _ask_for(lanes, tile, stride, table, at):  # type: ignore[no-untyped-def]
    """Prefetch a row."""
    for column in range(0, stride, tile):
        prefetch(lanes, table, at + column)


@njit(cache=True, nogil=True)
def _set_slopes(slots, slopes, count, positives, rate, weight):  # type: ignore[no-untyped-def]
    """Replace products by rate (1 - s) for the first ones, those of positives, and by -rate w s for the others."""
    for first in range(0, count, _SLOTS_COUNT):
        products = load(slots, slopes, first, _SLOTS_COUNT)
        one = splat(slots, _ONE)
        chances = one / (exp(products * _MINUS_ONE) + one)
        store(slots, slopes, first, chances, _SLOTS_COUNT)
    for number in range(positives):
        slopes[number] = rate * (_ONE - slopes[number])
    for number in range(positives, count):
        slopes[number] *= -rate * weight


@njit(cache=True, nogil=True)
def _train(  # type: ignore[no-untyped-def]
    lanes, slots, tile, stride, vertex, context, centres, contexts, negatives, rate, weight, noise, rows, slopes
):
    """Rows moved by SGD. A row of a pair's contexts that is among its negatives too moves by both slopes.

    Args:
        rows: int64 (K + 1,), room to work in: where the rows of the contexts begin.
        slopes: float32 (K + 1 and more,), likewise.
    """
    count, num_negatives = negatives.shape
    state = np.uint64(1)
    if noise is not None:
        state = noise
    for i in range(count):
        ahead = i + PAIRS_AHEAD
        if ahead < count:
            _ask_for(lanes, tile, stride, vertex, np.int64(centres[ahead]) * stride)
            _ask_for(lanes, tile, stride, context, np.int64(contexts[ahead]) * stride)
            for k in range(num_negatives):
                _ask_for(lanes, tile, stride, context, np.int64(negatives[ahead, k]) * stride)
        own = np.int64(centres[i]) * stride
        rows[0] = np.int64(contexts[i]) * stride
        for k in range(num_negatives):
            rows[k + 1] = np.int64(negatives[i, k]) * stride
        for k in range(num_negatives + 1):
            slopes[k] = _product(lanes, tile, stride, vertex, own, context, rows[k])
        _set_slopes(slots, slopes, num_negatives + 1, 1, rate, weight)
        for column in range(0, stride, tile):
            centre, change = load(lanes, vertex, own + column, tile), zeros(lanes)
            for k in range(num_negatives + 1):
                at = rows[k] + column
                row = load(lanes, context, at, tile)
                change = change + row * slopes[k]
                if noise is not None:
                    state = _next(state)
                put(lanes, context, at, row + centre * slopes[k], state * _SCRAMBLE)
            if noise is not None:
                state = _next(state)
            # Read again: one of the contexts may have been this very row.
            put(lanes, vertex, own + column, load(lanes, vertex, own + column, tile) + change, state * _SCRAMBLE)


@njit(cache=True, nogil=True)
def _train_groups(  # type: ignore[no-untyped-def]
    lanes,
    slots,
    tile,
    stride,
    vertex,
    context,
    centres,
    contexts,
    negatives,
    rate,
    weight,
    noise,
    rows,
    slopes,
    group,
    changes,
):
    """Do what `_train` does, with negatives shared by so many pairs, which move by slopes taken before any of them.

    Args:
        rows: int64 (group + K,), room to work in.
        slopes: float32 (group * (1 + K) and more,), likewise: of the positives, then of each negative with each pair.
        changes: float32 (group * tile,), likewise: of the centres.
    """
    count, num_negatives = len(centres), negatives.shape[1]
    state = np.uint64(1)
    if noise is not None:
        state = noise
    for low in range(0, count, group):
        pairs, number = min(group, count - low), low // group
        for i in range(low + pairs, min(low + pairs + group, count)):
            _ask_far_for(lanes, tile, stride, vertex, np.int64(centres[i]) * stride)
            _ask_far_for(lanes, tile, stride, context, np.int64(contexts[i]) * stride)
        if low + pairs < count:
            for k in range(num_negatives):
                _ask_far_for(lanes, tile, stride, context, np.int64(negatives[number + 1, k]) * stride)
        for i in range(pairs):
            rows[i] = np.int64(centres[low + i]) * stride
            slopes[i] = _product(lanes, tile, stride, vertex, rows[i], context, np.int64(contexts[low + i]) * stride)
        for k in range(num_negatives):
            at = np.int64(negatives[number, k]) * stride
            rows[pairs + k] = at
            for i in range(pairs):
                slopes[(k + 1) * pairs + i] = _product(lanes, tile, stride, vertex, rows[i], context, at)
        _set_slopes(slots, slopes, pairs * (num_negatives + 1), pairs, rate, weight)
        for column in range(0, stride, tile):
            for i in range(pairs):
                at = np.int64(contexts[low + i]) * stride + column
                row = load(lanes, context, at, tile)
                store(lanes, changes, i * tile, row * slopes[i], tile)
                if noise is not None:
                    state = _next(state)
                put(
                    lanes,
                    context,
                    at,
                    row + load(lanes, vertex, rows[i] + column, tile) * slopes[i],
                    state * _SCRAMBLE,
                )
            for k in range(num_negatives):
                at = rows[pairs + k] + column
                row, moved = load(lanes, context, at, tile), zeros(lanes)
                for i in range(pairs):
                    slope = slopes[(k + 1) * pairs + i]
                    moved = moved + load(lanes, vertex, rows[i] + column, tile) * slope
                    store(lanes, changes, i * tile, load(lanes, changes, i * tile, tile) + row * slope, tile)
                if noise is not None:
                    state = _next(state)
                put(lanes, context, at, load(lanes, context, at, tile) + moved, state * _SCRAMBLE)
            for i in range(pairs):
                at = rows[i] + column
                if noise is not None:
                    state = _next(state)
                moved = load(lanes, vertex, at, tile) + load(lanes, changes, i * tile, tile)
                put(lanes, vertex, at, moved, state * _SCRAMBLE)


@njit(cache=True, nogil=True)
def _ask_far_for(lanes, tile, stride, table, at):  # type: ignore[no-untyped-def]
    """Prefetch a row into the second-level cache."""
    for column in range(0, stride, tile):
        prefetch_far(lanes, table, at + column)


@njit(cache=True, nogil=True)
def _train_by_rule(  # type: ignore[no-untyped-def]
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
    rows,
    slopes,
    vertex_moment,
    vertex_scalars,
    context_moment,
    context_scalars,
    constants,
    scratch,
):
    """Rows moved by any rule. Its first lines are those of `_train`: a function for them costs either 5 to 10 %."""
    count, num_negatives = negatives.shape
    change, gradient = scratch[0], scratch[1]
    stride = len(change)
    state = np.uint64(1)
    if noise is not None:
        state = noise
    for i in range(count):
        ahead = i + PAIRS_AHEAD
        if ahead < count:
            _ask_for(lanes, tile, stride, vertex, np.int64(centres[ahead]) * stride)
            _ask_for(lanes, tile, stride, context, np.int64(contexts[ahead]) * stride)
            for k in range(num_negatives):
                _ask_for(lanes, tile, stride, context, np.int64(negatives[ahead, k]) * stride)
        centre = np.int64(centres[i])
        own = centre * stride
        rows[0] = np.int64(contexts[i])
        for k in range(num_negatives):
            rows[k + 1] = np.int64(negatives[i, k])
        for k in range(num_negatives + 1):
            slopes[k] = _product(lanes, tile, stride, vertex, own, context, rows[k] * stride)
        _set_slopes(slots, slopes, num_negatives + 1, 1, _ONE, weight)
        for column in range(0, stride, tile):
            store(lanes, change, column, zeros(lanes), tile)
        for k in range(num_negatives + 1):
            for column in range(0, stride, tile):
                moved = load(lanes, context, rows[k] * stride + column, tile) * slopes[k]
                store(lanes, change, column, load(lanes, change, column, tile) + moved, tile)
                store(lanes, gradient, column, load(lanes, vertex, own + column, tile) * slopes[k], tile)
            state = _next(state)
            _move(
                lanes, tile, width, context, rows[k], gradient, context_moment, context_scalars, rate, constants, state
            )
        state = _next(state)
        _move(lanes, tile, width, vertex, centre, change, vertex_moment, vertex_scalars, rate, constants, state)


@njit(cache=True, nogil=True)
def _move(lanes, tile, width, table, row, gradient, moment, scalars, rate, constants, state):  # type: ignore[no-untyped-def]
    """Move a row of a table by its gradient (stride,), as `Rule` says."""
    stride = len(gradient)
    at = row * stride
    decay, second_decay, epsilon = constants[0], constants[1], constants[2]
    scale, fresh = rate, _ONE
    if scalars is not None:
        squares = zeros(lanes)
        for column in range(0, stride, tile):
            part = load(lanes, gradient, column, tile)
            squares = squares + part * part
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
    scramble = state * _SCRAMBLE
    for column in range(0, stride, tile):
        step = load(lanes, gradient, column, tile)
        if moment is not None:
            step = load(lanes, moment, at + column, tile) * decay + step * fresh
            put(lanes, moment, at + column, step, scramble)
        scramble = _next(scramble)
        put(lanes, table, at + column, load(lanes, table, at + column, tile) + step * scale, scramble)


def reference_train_pairs(
    vertex: NDArray[np.float64],
    context: NDArray[np.float64],
    pairs: NDArray[Any],
    negatives: NDArray[Any],
    rate: float,
    negative_weight: float = 1.0,
    rule: Rule | None = None,
) -> None:
    """Do what `train_pairs` does in plain float64: tables (rows, width), pairs (n, 2), no memory of the rule yet."""
    remembered: dict[tuple[int, int], list[Any]] = {}
    rule = rule or Rule()
    for (u, v), others in zip(pairs, negatives, strict=True):
        rows = [v, *others]
        chances = [1 / (1 + np.exp(-vertex[u] @ context[row])) for row in rows]
        slopes = [1 - chances[0], *(-negative_weight * chance for chance in chances[1:])]
        change = np.zeros(vertex.shape[1])
        for slope, row in zip(slopes, rows, strict=True):
            change += slope * context[row]
            context[row] += rate * _reference_step(rule, remembered, (id(context), row), slope * vertex[u])
        vertex[u] += rate * _reference_step(rule, remembered, (id(vertex), u), change)


def _reference_step(rule: Rule, remembered: dict[Any, list[Any]], row: Any, gradient: NDArray[Any]) -> NDArray[Any]:
    kept = remembered.setdefault(row, [0.0, 0.0, 0])
    kept[2] += 1
    mean = float((gradient**2).mean())
    if rule.name == "momentum":
        kept[0] = rule.decay * kept[0] + gradient
        return np.asarray(kept[0])
    if rule.name == "adagrad":
        kept[1] += mean
        return gradient / (math.sqrt(kept[1]) + rule.epsilon)
    if rule.name == "adam":
        kept[0] = rule.decay * kept[0] + (1 - rule.decay) * gradient
        kept[1] = rule.second_decay * kept[1] + (1 - rule.second_decay) * mean
        first = kept[0] / (1 - rule.decay ** kept[2])
        return np.asarray(first / (math.sqrt(kept[1] / (1 - rule.second_decay ** kept[2])) + rule.epsilon))
    return gradient
