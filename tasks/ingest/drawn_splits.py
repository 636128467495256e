"""Splits drawn by counters: a node, or a pair of nodes, is in one split whatever else there is."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.counter_random import bits, uniform

_SPLIT = 15  # the stream of random numbers


@njit(cache=True, nogil=True)
def pick_splits(counters, seed, valid_share, test_share):  # type: ignore[no-untyped-def]
    """Return 0 (train), 1 (valid) or 2 (test) for each counter, int8."""
    out = np.empty(len(counters), np.int8)
    for i in range(len(counters)):
        u = uniform(seed, _SPLIT, counters[i])
        out[i] = 1 if u < valid_share else (2 if u < valid_share + test_share else 0)
    return out


@njit(cache=True, nogil=True)
def pair_keys(src, dst):  # type: ignore[no-untyped-def]
    """Return a number for each unordered pair, uint64: both drawings of a pair go to one split."""
    out = np.empty(len(src), np.uint64)
    for i in range(len(src)):
        low, high = min(src[i], dst[i]), max(src[i], dst[i])
        out[i] = bits(low, 0, high) >> np.uint64(1)
    return out
