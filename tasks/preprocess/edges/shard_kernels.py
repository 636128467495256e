"""Kernels of one shard: pack edges into keys, radix sort them, compress them into runs. One thread, GIL released."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from tasks.arrays import Array

_DIGIT_BITS = 11  # 2,048 counters of 8 bytes stay in the first-level cache
_BUCKET_KEYS = 1 << 14  # keys of a bucket: 16 bytes each with the copy, well inside a second-level cache of 512 KiB
_SMALL_BUCKET = 48  # up to so many keys insertion is faster than counting


class Runs(NamedTuple):
    """Edges of a shard, sorted by destination, then source: a run of sources for each destination."""

    rows: Array
    """id (R,), destinations that occur, ascending."""
    counts: Array
    """int64 (R,), edges of each."""
    cols: Array
    """id (E,), sources, ascending within a run."""
    table_rows: Array
    """int (E,), row of the shard's table that each edge comes from; empty where nobody needs it."""

    def first(self, num_rows: int, num_edges: int) -> Runs:
        """Return the first runs and edges."""
        return Runs(self.rows[:num_rows], self.counts[:num_rows], self.cols[:num_edges], self.table_rows[:num_edges])


class _Keys(NamedTuple):
    """Packed edges, and what follows them."""

    keys: Array
    """uint64 or uint32."""
    payload: Array
    """As long, or empty."""


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

    `src` and `dst`, id (E,), are numbered within their node types, whose first ids in the graph are `src_offset` and
    `dst_offset`; an id has `bits` bits. A self-loop is its own reverse. `keys`, uint64 with room for all, holds `count`
    keys; `rows`, int or empty (not wanted), gets the row of the table that each comes from, `first_row` for the first.

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


def sort_and_compress(keys: Array, payload: Array, bits: int, merge: bool) -> Runs:
    """Sort packed edges by row, then column, stably, and split them into runs.

    One radix pass by the highest bits cuts the keys into buckets that fit the second-level cache, and keeps only the
    other bits: half the bytes where those are at most 32. Within a bucket they are sorted digit by digit, from the
    lowest on, and turned into columns in place, so that no memory is touched for the first time but that of the result.

    Args:
        keys: uint64 (E,), `row << bits | column`; used up.
        payload: (E,), follows; or empty. Used up.
        bits: bits of an id.
        merge: leave out repeated keys (there must be no payload).
    """
    n = len(keys)
    assert not (merge and len(payload)), "merged edges have no payload"
    top_bits = _top_bits(n, bits)
    rest = 2 * bits - top_bits
    # NumPy asks for huge pages where numba does not: a seventh of the page faults' time (Linux 6.18, 2026).
    low = _Keys(np.empty(n, np.uint32 if rest <= 32 else np.uint64), np.empty_like(payload))
    start = np.zeros((1 << top_bits) + 1, np.int64)
    _partition(_Keys(keys, payload), rest, top_bits, low, start)
    cols = low.keys.view(np.int32 if bits <= 31 else np.int64)
    most = min(n, 1 << bits)
    runs = Runs(np.empty(most, cols.dtype), np.empty(most, np.int64), cols, low.payload)
    spare = _Keys(keys.view(low.keys.dtype)[:n], payload)
    return runs.first(*_sort_buckets(low, spare, start, rest, bits, merge, runs))


def _top_bits(num_keys: int, bits: int) -> int:
    """Choose the digit of the first pass: small enough buckets, and 32 bits left if the buckets stay large enough."""
    most = min(bits, _DIGIT_BITS)
    top_bits = 0
    while top_bits < most and num_keys >> top_bits > _BUCKET_KEYS:
        top_bits += 1
    narrow = 2 * bits - 32
    return narrow if top_bits < narrow <= most and num_keys >> narrow >= 1 << _DIGIT_BITS else top_bits


@njit(cache=True, nogil=True)
def _partition(source: _Keys, rest: int, top_bits: int, low: _Keys, start: Array) -> None:
    """Move the keys' lowest `rest` bits to the buckets of their `top_bits`; `start` becomes the buckets' bounds."""
    size = len(source.keys)
    counts = np.zeros((1, 1 << top_bits), np.int64)
    _count_digits(source.keys, 0, size, rest, top_bits, counts)
    _to_places(counts[0], 0)
    start[:-1] = counts[0]
    start[-1] = size
    _scatter(source, 0, size, rest, top_bits, counts[0], low)


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
def _scatter(source: _Keys, first: int, last: int, shift: int, digit_bits: int, places: Array, out: _Keys) -> None:
    """Move keys first to last (their lowest bits, where those of `out` are narrower) to the places of their digits."""
    keys, payload = source
    out_keys, out_payload = out
    mask = np.uint64((1 << digit_bits) - 1)
    follow = len(payload) > 0
    for i in range(first, last):
        key = np.uint64(keys[i])
        digit = np.int64((key >> np.uint64(shift)) & mask)
        place = places[digit]
        places[digit] = place + 1
        out_keys[place] = key
        if follow:
            out_payload[place] = payload[i]


@njit(cache=True, nogil=True)
def _sort_buckets(
    low: _Keys, spare: _Keys, start: Array, rest: int, bits: int, merge: bool, runs: Runs
) -> tuple[int, int]:
    """Sort each bucket and append its runs; their columns may lie in the memory of `low`, which they follow behind.

    Return how many runs and edges there are.
    """
    rows, counts, cols = runs.rows, runs.counts, runs.cols
    digits = np.empty(((rest + _DIGIT_BITS - 1) // _DIGIT_BITS, 1 << _DIGIT_BITS), np.int64)
    rest_mask = ~np.uint64(0) >> np.uint64(64 - rest)
    mask = (np.uint64(1) << np.uint64(bits)) - np.uint64(1)
    num_rows, size, run = 0, 0, 0
    for bucket in range(len(start) - 1):
        first, last = start[bucket], start[bucket + 1]
        if first == last:
            continue
        ordered = spare.keys if _sort_bucket(low, spare, first, last, digits) else low.keys
        top = np.uint64(bucket) << np.uint64(rest - bits)
        previous = np.uint64(0)
        for i in range(first, last):
            key = np.uint64(ordered[i]) & rest_mask
            if i == first or (key ^ previous) > mask:
                if num_rows > 0:
                    counts[num_rows - 1] = size - run
                rows[num_rows] = np.int64(top | (key >> np.uint64(bits)))
                num_rows += 1
                run = size
            elif merge and key == previous:
                continue
            cols[size] = np.int64(key & mask)
            size += 1
            previous = key
    if num_rows > 0:
        counts[num_rows - 1] = size - run
    return num_rows, size


@njit(cache=True, nogil=True)
def _sort_bucket(bucket: _Keys, spare: _Keys, first: int, last: int, counts: Array) -> bool:
    """Sort keys first to last by their lowest digits, as many as `counts` has rows.

    Return whether the sorted keys are in `spare`; the payload always comes back.
    """
    keys, payload = bucket
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
        return False
    counts[:] = 0
    _count_digits(keys, first, last, 0, _DIGIT_BITS, counts)
    moved = False
    for p in range(len(counts)):
        if counts[p].max() == last - first:  # all keys share this digit
            continue
        _to_places(counts[p], first)
        if moved:
            _scatter(spare, first, last, p * _DIGIT_BITS, _DIGIT_BITS, counts[p], bucket)
        else:
            _scatter(bucket, first, last, p * _DIGIT_BITS, _DIGIT_BITS, counts[p], spare)
        moved = not moved
    if moved and follow:
        payload[first:last] = spare.payload[first:last]
    return moved
