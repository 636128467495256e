"""Draws in proportion to weights, in constant time each.

Walker's alias method (ACM Transactions on Mathematical Software 3, 1977), tables built in linear time as by Vose (IEEE
Transactions on Software Engineering 17, 1991): every item shares a place of equal size with one other item at most. A
place is one number of 64 bits, so that a draw is one read: the chance of the place's own item in the upper 32 bits, the
other item in the lower ones.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.sampling.neighborhoods.fast_random import STEP, below, below_and_fraction

MOST_ITEMS = 2**32
"""Items that a table can tell apart."""
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_WHOLE = 4294967296.0


def alias_table(weights: Array) -> Array:
    """Return the table of items with these weights, float (n,): uint64 (n,).

    Items of weight 0 are never drawn. Chances are as exact as 2^-32 / n.

    Raises:
        ValueError: no items, more than MOST_ITEMS, no weight above 0, or one that is negative, infinite or NaN.
    """
    if not 0 < len(weights) <= MOST_ITEMS:
        raise ValueError(f"an alias table has 1 to {MOST_ITEMS:,} items, not {len(weights):,}")
    table = np.empty(len(weights), np.uint64)
    if not fill_alias(np.asarray(weights), table, np.empty(len(weights)), np.empty(len(weights), np.int64)):
        raise ValueError("weights must be finite, none below 0, and one at least above 0")
    return table


@njit(cache=True, nogil=True)
def fill_alias(weights, table, shares, order):  # type: ignore[no-untyped-def]
    """Fill table uint64 (n,); return whether the weights are fit. Room to work in: shares float64, order int64 (n,)."""
    n, total = len(weights), 0.0
    for i in range(n):
        if not 0 <= weights[i] < math.inf:
            return False
        total += weights[i]
    if not 0 < total < math.inf:
        return False
    small, large = 0, n  # items that want less than a place fill `order` from its front, the others from its end
    for i in range(n):
        shares[i] = weights[i] / total * n
        if shares[i] < 1:
            order[small] = i
            small += 1
        else:
            large -= 1
            order[large] = i
    while small > 0 and large < n:
        small -= 1
        item, other = order[small], order[large]
        table[item] = _place(shares[item], other)
        shares[other] -= 1 - shares[item]
        if shares[other] < 1:
            large += 1
            order[small] = other
            small += 1
    # What is left wants a whole place, but for rounding.
    for i in range(small):
        table[order[i]] = _place(1.0, order[i])
    for i in range(large, n):
        table[order[i]] = _place(1.0, order[i])
    return True


@njit(inline="always")
def _place(share, other):  # type: ignore[no-untyped-def]
    chance = np.uint64(min(share * _WHOLE, _WHOLE - 1))
    return (chance << _HALF) | np.uint64(other)


@njit(inline="always")
def chosen(place, item, fraction):  # type: ignore[no-untyped-def]
    """Return the place's own item or the other one, by 64 random bits.

    There is no branch: it would be foreseen wrongly every other time, and draws would take four times as long.
    """
    own = -np.int64((fraction >> _HALF) < (place >> _HALF))
    return (item & own) | (np.int64(place & _LOW) & ~own)


@njit(inline="always")
def draw(table, state):  # type: ignore[no-untyped-def]
    """Return an item, int64, from a state of `fast_random`."""
    item, fraction = below_and_fraction(state, len(table))
    return chosen(table[item], item, fraction)


@njit(cache=True, nogil=True)
def draw_alike(num_items, state, out):  # type: ignore[no-untyped-def]
    """Fill out (m,) as `draw_many` does from a table of equal weights, bit by bit, without reading one."""
    for i in range(len(out)):
        state += STEP
        out[i] = below(state, num_items)
    return state


@njit(cache=True, nogil=True)
def draw_many(table, state, out):  # type: ignore[no-untyped-def]
    """Fill out (m,) with items, from state + STEP on; return the last state."""
    ahead = state + STEP * np.uint64(AHEAD)
    for i in range(len(out)):
        state += STEP
        ahead += STEP
        prefetch_item(table, below(ahead, len(table)))
        out[i] = draw(table, state)
    return state
