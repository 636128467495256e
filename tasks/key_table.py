"""A hash table of int64 keys with open addressing; a free slot holds `FREE`. For kernels: it is an array alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.counter_random import mix

FREE = -1
"""No key is negative."""


def key_table(capacity: int) -> NDArray[Any]:
    """Return an empty table, int64, that stays at most half full with `capacity` distinct keys."""
    return np.full(1 << max(4, (2 * capacity - 1).bit_length()), FREE, np.int64)


@njit(cache=True, nogil=True)
def slot(key, keys):  # type: ignore[no-untyped-def]
    """Return where `key` stands, or the free slot for it."""
    mask = np.int64(len(keys) - 1)
    at = np.int64(mix(np.uint64(key))) & mask
    while keys[at] != FREE and keys[at] != key:
        at = (at + 1) & mask
    return at
