"""Draws in proportion to weights, in constant time each, and passes over edges that take each by its weight.

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
from tasks.counter_random import mix
from tasks.sampling.neighborhoods.fast_random import STEP, below, below_and_fraction, stream

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


_MEAN_SHARE = 0.5
"""Of edges by weight. A larger one leaves fewer edges out in a pass, and has more of them there several times."""
_BUCKETS = 1024
"""Parts that are shuffled one by one, each in a cache: a shuffle of all waits for memory with every edge."""
_TO_UNIT = 1.0 / 9007199254740992.0
_ELEVEN = np.uint64(11)


class EdgePasses:
    """The edges of a graph in a random order: the same for a key, whatever part of a pass is asked for."""

    def __init__(self, indptr: Array, indices: Array, *, key: int, weight: Array | None = None) -> None:
        """Copy and shuffle the edges: 12 bytes for each of them with ids of 32 bits, 16 or less with weights.

        Args:
            indptr: int64 (N + 1,): out-edges of v are indptr[v] to indptr[v + 1].
            indices: int32 or int64 (E,): their ends.
            key: of the order.
            weight: float32 (E,): edges are taken in proportion to it; None: each once in every pass.

        Raises:
            ValueError: there are no edges, or weights are not fit.
        """
        if not len(indices):
            raise ValueError("there are no edges to take")
        weight = np.ones(len(indices), np.float32) if weight is None else np.ascontiguousarray(weight, np.float32)
        low, high = float(weight.min()), float(weight.max())
        if not (low >= 0 and 0 < high < math.inf):
            raise ValueError("edge weights must be finite, none below 0, and one at least above 0")
        total = float(weight.sum(dtype=np.float64))
        share = 1.0 if low == high else _MEAN_SHARE
        self.key, scale = key, share * len(weight) / total
        sizes = np.zeros(_BUCKETS + 1, np.int64)
        _count(weight, scale, key, sizes)
        starts = np.cumsum(sizes)
        count = int(starts[-1])
        self.heads, self.tails = np.empty(count, indices.dtype), np.empty(count, indices.dtype)
        self.shares = np.empty(count, np.float32)
        edges = np.ascontiguousarray(indptr), np.ascontiguousarray(indices), weight
        _shuffle(*edges, scale, key, starts, self.heads, self.tails, self.shares)
        self.mean_share = scale * total / count

    def __len__(self) -> int:
        """Return how many entries a pass goes through: an edge is one or several of them."""
        return len(self.shares)

    def fill(self, first: int, count: int, sources: Array, targets: Array) -> int:
        """Write what is taken of entries number first to first + count, over all passes; return how many are.

        `sources`, `targets`: room for `count` ids each.
        """
        return int(_take(self.heads, self.tails, self.shares, self.key, first, count, sources, targets))


@njit(inline="always")
def _copies(weight, scale):  # type: ignore[no-untyped-def]
    """Return how many entries an edge is; of weight 0 none."""
    return np.int64(np.ceil(np.float64(weight) * scale))


@njit(cache=True, nogil=True)
def _count(weight, scale, key, sizes):  # type: ignore[no-untyped-def]
    """Count the entries of bucket b in sizes[b + 1]."""
    state = stream(key, 0)
    for e in range(len(weight)):
        for _ in range(_copies(weight[e], scale)):
            state += STEP
            sizes[below(state, _BUCKETS) + 1] += 1


@njit(cache=True, nogil=True)
def _shuffle(indptr, indices, weight, scale, key, starts, heads, tails, shares):  # type: ignore[no-untyped-def]
    """Write entries into the buckets that they were counted in, each shuffled as it fills (Fisher and Yates)."""
    state, order = stream(key, 0), stream(key, 1)
    sizes = np.zeros(_BUCKETS, np.int64)
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            copies = _copies(weight[e], scale)
            for _ in range(copies):
                state += STEP
                bucket = below(state, _BUCKETS)
                at = starts[bucket] + sizes[bucket]
                sizes[bucket] += 1
                heads[at], tails[at] = v, indices[e]
                shares[at] = np.float64(weight[e]) * scale / copies
    for bucket in range(_BUCKETS):
        for size in range(1, sizes[bucket]):
            order += STEP
            at, other = starts[bucket] + size, starts[bucket] + below(order, size + 1)
            heads[at], heads[other] = heads[other], heads[at]
            tails[at], tails[other] = tails[other], tails[at]
            shares[at], shares[other] = shares[other], shares[at]


@njit(cache=True, nogil=True)
def _take(heads, tails, shares, key, first, count, sources, targets):  # type: ignore[no-untyped-def]
    """Write what is taken of entries, over all passes; return how many are."""
    size, found = len(shares), np.int64(0)
    number, low = first // size, first % size
    while count > 0:
        high = min(size, low + count)
        for i in range(low, high):
            share = np.float64(shares[i])
            own = np.float64(mix(np.uint64(key) + np.uint64(i) * STEP) >> _ELEVEN) * _TO_UNIT
            # Written whether taken or not: a branch on it would be foreseen wrongly every other time.
            sources[found], targets[found] = heads[i], tails[i]
            found += np.int64(np.floor(own + share * (number + 1)) - np.floor(own + share * number))
        count -= high - low
        number, low = number + 1, 0
    return found
