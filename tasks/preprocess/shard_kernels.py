"""Kernels of one shard: pack edges into keys, radix sort them, compress them into runs. One thread, GIL released."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

Array = NDArray[Any]

_DIGIT_BITS = 11  # 2,048 counters of 8 bytes stay in the first-level cache
_BUCKET_KEYS = 1 << 14  # keys of a bucket: 16 bytes each with the copy, well inside a second-level cache of 512 KiB
_SMALL_BUCKET = 48  # up to so many keys insertion is faster than counting


@njit(cache=True, nogil=True)
def expand_edges(
    src: Array,
    dst: Array,
    src_offset: int,
    dst_offset: int,
    symmetrize: bool,
    drop_loops: bool,
    bits: int,
    keys: Array,
    count: int,
    rows: Array,
    first_row: int,
) -> tuple[int, int]:
    """Pack each edge, and its reverse, as `dst << bits | src`, behind the keys that are there.

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
        keys: uint64, with room for all.
        count: keys that are set before.
        rows: int32 or int64, room for the row of the table that each key comes from; may be empty (not wanted).
        first_row: the table's row of the first edge.

    Returns:
        keys that are set now, and the number of self-loops met.
    """
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
            rows[count] = first_row + e
        count += 1
        if symmetrize and s != d:
            keys[count] = (s << shift) | d
            if keep_rows:
                rows[count] = first_row + e
            count += 1
    return count, loops


def radix_sort(keys: Array, payload: Array, bits: int) -> tuple[Array, Array]:
    """Sort uint64 keys of so many bits, stably; the payload (same length, or empty) follows. The inputs are used up.

    One pass by the highest bits cuts the keys into buckets that fit the second-level cache; within a bucket the other
    bits are sorted digit by digit, from the lowest on.
    """
    # NumPy asks for huge pages where numba does not: a seventh of the page faults' time (Linux 6.18, 2026).
    other_keys, other_payload = np.empty_like(keys), np.empty_like(payload)
    _radix_sort(keys, payload, bits, other_keys, other_payload)
    return other_keys, other_payload


@njit(cache=True, nogil=True)
def _radix_sort(keys: Array, payload: Array, bits: int, other_keys: Array, other_payload: Array) -> None:
    n = len(keys)
    top_bits = 0
    while top_bits < min(bits, _DIGIT_BITS) and n >> top_bits > _BUCKET_KEYS:
        top_bits += 1
    rest = bits - top_bits
    start = np.zeros((1 << top_bits) + 1, np.int64)
    if top_bits > 0:
        counts = np.zeros((1, 1 << top_bits), np.int64)
        _count_digits(keys, 0, n, rest, top_bits, counts)
        _to_places(counts[0], 0)
        start[:-1] = counts[0]
        _scatter(keys, payload, 0, n, rest, top_bits, counts[0], other_keys, other_payload)
    else:
        other_keys[:] = keys
        other_payload[:] = payload
    start[-1] = n
    counts = np.empty(((rest + _DIGIT_BITS - 1) // _DIGIT_BITS, 1 << _DIGIT_BITS), np.int64)
    for bucket in range(len(start) - 1):
        _sort_bucket(other_keys, other_payload, keys, payload, start[bucket], start[bucket + 1], counts)


@njit(cache=True, nogil=True)
def _count_digits(keys: Array, first: int, last: int, shift: int, digit_bits: int, counts: Array) -> None:
    """Count the digits of keys[first:last] above bit `shift`, a row of `counts` each; one look at the keys does."""
    mask = np.uint64((1 << digit_bits) - 1)
    for i in range(first, last):
        key = keys[i] >> np.uint64(shift)
        for p in range(len(counts)):
            counts[p, np.int64(key & mask)] += 1
            key >>= np.uint64(digit_bits)


@njit(cache=True, nogil=True)
def _to_places(counts: Array, first: int) -> None:
    """Replace how often each digit occurs by the place of its first key."""
    place = first
    for digit in range(len(counts)):
        count = counts[digit]
        counts[digit] = place
        place += count


@njit(cache=True, nogil=True)
def _scatter(
    keys: Array,
    payload: Array,
    first: int,
    last: int,
    shift: int,
    digit_bits: int,
    places: Array,
    out_keys: Array,
    out_payload: Array,
) -> None:
    """Move keys[first:last] to the places of their digits."""
    mask = np.uint64((1 << digit_bits) - 1)
    follow = len(payload) > 0
    for i in range(first, last):
        digit = np.int64((keys[i] >> np.uint64(shift)) & mask)
        place = places[digit]
        places[digit] = place + 1
        out_keys[place] = keys[i]
        if follow:
            out_payload[place] = payload[i]


@njit(cache=True, nogil=True)
def _sort_bucket(
    keys: Array, payload: Array, spare_keys: Array, spare_payload: Array, first: int, last: int, counts: Array
) -> None:
    """Sort keys[first:last] by their lowest digits, as many as `counts` has rows; the spare arrays are scratch."""
    follow = len(payload) > 0
    if last - first <= _SMALL_BUCKET:
        for i in range(first + 1, last):
            key = keys[i]
            k = i - 1
            if follow:
                value = payload[i]
            while k >= first and keys[k] > key:
                keys[k + 1] = keys[k]
                if follow:
                    payload[k + 1] = payload[k]
                k -= 1
            keys[k + 1] = key
            if follow:
                payload[k + 1] = value
        return
    counts[:] = 0
    _count_digits(keys, first, last, 0, _DIGIT_BITS, counts)
    moved = False
    for p in range(len(counts)):
        if counts[p].max() == last - first:  # all keys share this digit
            continue
        _to_places(counts[p], first)
        if moved:
            _scatter(spare_keys, spare_payload, first, last, p * _DIGIT_BITS, _DIGIT_BITS, counts[p], keys, payload)
        else:
            _scatter(keys, payload, first, last, p * _DIGIT_BITS, _DIGIT_BITS, counts[p], spare_keys, spare_payload)
        moved = not moved
    if moved:
        keys[first:last] = spare_keys[first:last]
        if follow:
            payload[first:last] = spare_payload[first:last]


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
    most = min(len(keys), 1 << bits)
    rows, counts = np.empty(most, cols.dtype), np.empty(most, np.int64)
    num_rows, size = _compress_keys(keys, bits, merge, cols, rows, counts)
    return rows[:num_rows], counts[:num_rows], size


@njit(cache=True, nogil=True)
def _compress_keys(keys: Array, bits: int, merge: bool, cols: Array, rows: Array, counts: Array) -> tuple[int, int]:
    """Fill `cols`, `rows` and `counts`; return how many rows and columns there are."""
    shift = np.uint64(bits)
    low = (np.uint64(1) << shift) - np.uint64(1)
    num_rows, size, first = 0, 0, 0
    previous = np.uint64(0)
    for i in range(len(keys)):
        key = keys[i]
        if i == 0 or (key ^ previous) > low:
            if i > 0:
                counts[num_rows - 1] = size - first
            rows[num_rows] = np.int64(key >> shift)
            num_rows += 1
            first = size
        elif merge and key == previous:
            continue
        cols[size] = np.int64(key & low)
        size += 1
        previous = key
    if num_rows > 0:
        counts[num_rows - 1] = size - first
    return num_rows, size
