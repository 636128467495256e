"""How times are kept, and how many edges of a slot come before a cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit

from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.storage.graph_store import ALWAYS, INT32_MAX

_GROUP = 32
"""Slots that are searched in step: what each reads next is asked for while the others are at it."""


@dataclass(frozen=True)
class Clock:
    """How times are kept: in 32 bits as long as they span no more, which halves what a search reads.

    A kept time is the time less `origin`, and at least `least`, which is what ALWAYS becomes.
    """

    origin: int
    least: int
    dtype: type[np.signedinteger[Any]]

    @classmethod
    def spanning(cls, *times: Array | None) -> Clock:
        """Return the clock for some arrays of times, int64."""
        ranges = [time_range(some) for some in times if some is not None]
        first, last = min(low for low, _ in ranges), max(high for _, high in ranges)
        if last - first < INT32_MAX:  # also where nothing has a time: then it is negative
            return cls(min(first, last), -1, np.int32)
        return cls(0, ALWAYS, np.int64)

    def cuts(self, cuts: Array) -> Array:
        """Return cuts int64 (C,) as they are compared with kept times."""
        if self.dtype is np.int64:
            return cuts
        # Also before the first time, what was always there is seen.
        last = np.int64(self.origin) + INT32_MAX
        return (np.clip(cuts, self.origin, last) - self.origin).astype(np.int32)


@njit(cache=True, nogil=True)
def time_range(times):  # type: ignore[no-untyped-def]
    """Return the least and the largest time that is not ALWAYS; 2^62 and -2^62 where there is none."""
    low, high = np.int64(-ALWAYS), np.int64(ALWAYS)
    for time in times:
        low = min(low, time if time > ALWAYS else low)
        high = max(high, time)
    return low, high


@njit(cache=True, nogil=True)
def cut_slots(times, cut_numbers, cuts, width, low, size):  # type: ignore[no-untyped-def]
    """Lower size int64 (n * width,) to the edges whose time is below the row's cut.

    Args:
        times: int32 or int64 (E,), ascending within a slot.
        cut_numbers: int32 (n,), the rows' cuts; None: all have cuts[0].
        cuts: (C,), of the same dtype.
        width: slots a row.
        low: int64 (n * width,), each slot's first edge.
        size: how many edges it has.
    """
    n, rows = len(low) // width, max(1, _GROUP // width)
    begins, slot_cuts = np.empty(rows * width, np.int64), np.empty(rows * width, cuts.dtype)
    active = np.empty(rows * width, np.int64)
    for row in range(0, n, rows):
        first, last = row * width, min(row + rows, n) * width
        at, num_active = first, np.int64(0)
        for i in range(row, min(row + rows, n)):
            cut = cuts[0] if cut_numbers is None else cuts[cut_numbers[i]]
            for _ in range(width):
                # From here on size counts the edges that are in question, and begins is the first of them.
                begins[at - first], slot_cuts[at - first] = low[at], cut
                active[num_active] = at
                num_active += int(size[at] > 0)
                prefetch_item(times, low[at] + (size[at] >> 1))
                at += 1
        while num_active:
            left = np.int64(0)
            for a in range(num_active):
                at = active[a]
                half = size[at] >> 1
                earlier = times[begins[at - first] + half] < slot_cuts[at - first]
                begins[at - first] += half + 1 if earlier else 0
                size[at] = size[at] - half - 1 if earlier else half
                prefetch_item(times, begins[at - first] + (size[at] >> 1))
                active[left] = at
                left += int(size[at] > 0)
            num_active = left
        for at in range(first, last):
            size[at] = begins[at - first] - low[at]
