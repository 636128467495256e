"""Kernels of one shard: pack edges into keys, radix sort them, compress them into runs. One thread, GIL released."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

_DIGIT_BITS = 11  # 2,048 counters of 8 bytes stay in the first-level cache


@njit(cache=True, nogil=True)
def expand_edges(
    src: Array, dst: Array, src_offset: int, dst_offset: int, symmetrize: bool, drop_loops: bool, bits: int, rows: Array
) -> tuple[Array, int, int]:
    """Pack each edge, and its reverse, as `dst << bits | src`.

    An edge and its reverse are neighbours in the result. So a stable sort keeps parallel edges in the order of the
    table in both directions, and merging them gives both directions the same data.

    Args:
        src: id (E,), numbered within its node type.
        dst: id (E,), likewise.
        src_offset: added to `src`: first id of its type in the graph.
        dst_offset: likewise.
        symmetrize: add reverses (a self-loop is its own).
        drop_loops: leave self-loops out.
        bits: bits of an id.
        rows: int32 or int64, room for the row of the table that each key comes from; may be empty (not wanted).

    Returns:
        keys uint64 (room for all; the first `count` are set), `count`, and the number of self-loops met.
    """
    keys = np.empty(len(src) * (2 if symmetrize else 1), np.uint64)
    count = 0
    loops = 0
    keep_rows = len(rows) > 0
    shift = np.uint64(bits)
    for e in range(len(src)):
        s = np.uint64(src[e] + src_offset)
        d = np.uint64(dst[e] + dst_offset)
        if s == d:
            loops += 1
            if drop_loops:
                continue
        keys[count] = (d << shift) | s
        if keep_rows:
            rows[count] = e
        count += 1
        if symmetrize and s != d:
            keys[count] = (s << shift) | d
            if keep_rows:
                rows[count] = e
            count += 1
    return keys, count, loops


@njit(cache=True, nogil=True)
def radix_sort(keys: Array, payload: Array, bits: int) -> tuple[Array, Array]:
    """Sort uint64 keys of so many bits, stably; the payload (same length, or empty) follows. The inputs are used up."""
    n = len(keys)
    follow = len(payload) > 0
    other_keys = np.empty(n, np.uint64)
    other_payload = np.empty(len(payload), payload.dtype)
    mask = np.uint64((1 << _DIGIT_BITS) - 1)
    count = np.empty((1 << _DIGIT_BITS) + 1, np.int64)
    digit: Any
    for low in range(0, bits, _DIGIT_BITS):
        shift = np.uint64(low)
        count[:] = 0
        for i in range(n):
            count[np.int64((keys[i] >> shift) & mask) + 1] += 1
        if count.max() == n:  # all keys share this digit
            continue
        for digit in range(len(count) - 1):
            count[digit + 1] += count[digit]
        for i in range(n):
            digit = np.int64((keys[i] >> shift) & mask)
            place = count[digit]
            count[digit] = place + 1
            other_keys[place] = keys[i]
            if follow:
                other_payload[place] = payload[i]
        keys, other_keys = other_keys, keys
        payload, other_payload = other_payload, payload
    return keys, payload


@njit(cache=True, nogil=True)
def compress_keys(keys: Array, bits: int, merge: bool, cols: Array) -> tuple[Array, Array, int]:
    """Split sorted keys into rows and columns.

    Args:
        keys: uint64 (E,), `row << bits | column`, ascending.
        bits: bits of an id.
        merge: leave out repeated keys.
        cols: id (E,), filled with the columns.

    Returns:
        rows that occur (id, ascending), edges of each (int64), and how many columns were set.
    """
    n = len(keys)
    shift = np.uint64(bits)
    low = (np.uint64(1) << shift) - np.uint64(1)
    num_rows = 0
    for i in range(n):
        if i == 0 or keys[i] >> shift != keys[i - 1] >> shift:
            num_rows += 1
    rows = np.empty(num_rows, cols.dtype)
    counts = np.zeros(num_rows, np.int64)
    row = -1
    size = 0
    for i in range(n):
        new_row = i == 0 or keys[i] >> shift != keys[i - 1] >> shift
        if new_row:
            row += 1
            rows[row] = np.int64(keys[i] >> shift)
        elif merge and keys[i] == keys[i - 1]:
            continue
        cols[size] = np.int64(keys[i] & low)
        counts[row] += 1
        size += 1
    return rows, counts, size
