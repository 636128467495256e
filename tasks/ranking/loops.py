"""The loops of ranking: entities are laid out as tiles of LANES, column by column, and queries in groups of GROUP.

| array | what |
|---|---|
| `tiles` float32 (t, w, LANES), flat | column j of a tile lies at (tile * w + j) * LANES; 0 fills the last tile |
| `counted` uint64 (t,) | a bit for each entity of a tile that counts |
| `queries`, `scales` float32 (g, w, GROUP), flat | likewise; scales may be None |
| `lows`, `highs`, `bases`, `known` | query i's known entities are known[lows[i]:highs[i]] - bases[i], ascending |
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.row_tiles import lay_out
from models.kernels.simd.vector import load, store, zeros
from tasks.ranking.terms import (
    GROUP,
    add_term,
    lanes_above,
    lanes_equal,
    lanes_not_finite,
    lowest_bit,
    num_bits,
    spread,
)

_ONE = np.uint64(1)
_ZERO = np.float32(0)


@njit(cache=True, nogil=True)
def pack_tiles(low, high, square, side, size, rows, first, mask, tiles, counted):  # type: ignore[no-untyped-def]
    """Fill tiles low to high - 1 of rows float32 (m, w); the first is entity `first` of the mask bool (N,) or None."""
    width = rows.shape[1]
    for tile in range(low, high):
        bits, begin, row = np.uint64(0), tile * width * size, tile * size
        count = min(size, len(rows) - row)
        if count < size:
            tiles[begin : begin + width * size] = _ZERO
        lay_out(square, side, rows, row, count, tiles, begin, size)
        for lane in range(count):
            keep = True
            if mask is not None:
                keep = mask[first + row + lane]
            if keep:
                bits |= _ONE << np.uint64(lane)
        counted[tile] = bits


@njit(inline="always")
def _score_group(similarity, lanes, size, steps, width, queries, at, scales, tiles, tile, scores):  # type: ignore[no-untyped-def]
    """Write the scores of a group's queries with a tile's entities: (GROUP, LANES).

    Args:
        size: how many lanes.
        steps: terms of a score: w, or w/2 complex ones.
        at, tile: where the group's and the tile's numbers begin.
    """
    second, second_tile = (width - steps) * GROUP, (width - steps) * size
    a, b, c, d = zeros(lanes), zeros(lanes), zeros(lanes), zeros(lanes)
    e, f, g, h = zeros(lanes), zeros(lanes), zeros(lanes), zeros(lanes)
    for _ in range(steps):
        x, y = load(lanes, tiles, tile, size), load(lanes, tiles, tile + second_tile, size)
        a = _add(similarity, lanes, a, queries, scales, at, second, x, y)
        b = _add(similarity, lanes, b, queries, scales, at + 1, second, x, y)
        c = _add(similarity, lanes, c, queries, scales, at + 2, second, x, y)
        d = _add(similarity, lanes, d, queries, scales, at + 3, second, x, y)
        e = _add(similarity, lanes, e, queries, scales, at + 4, second, x, y)
        f = _add(similarity, lanes, f, queries, scales, at + 5, second, x, y)
        g = _add(similarity, lanes, g, queries, scales, at + 6, second, x, y)
        h = _add(similarity, lanes, h, queries, scales, at + 7, second, x, y)
        at += GROUP
        tile += size
    store(lanes, scores, 0, a, size)
    store(lanes, scores, size, b, size)
    store(lanes, scores, 2 * size, c, size)
    store(lanes, scores, 3 * size, d, size)
    store(lanes, scores, 4 * size, e, size)
    store(lanes, scores, 5 * size, f, size)
    store(lanes, scores, 6 * size, g, size)
    store(lanes, scores, 7 * size, h, size)


@njit(inline="always")
def _add(similarity, lanes, score, queries, scales, at, second, x, y):  # type: ignore[no-untyped-def]
    q, s, p = spread(lanes, queries, at), spread(lanes, scales, at), spread(lanes, queries, at + second)
    return add_term(similarity, score, q, s, x, p, y)


@njit(inline="always")
def _first_not_below(known, low, high, number):  # type: ignore[no-untyped-def]
    """Return where the first of known[low:high] is that is `number` or more; `high` if none is. All are uint64."""
    while low < high:
        middle = (low + high) >> 1
        if known[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


@njit(inline="always")
def _without_known(bits, known, places, i, stop, begin, size):  # type: ignore[no-untyped-def]
    """Return a tile's bits without query i's known entities, and go on to those of later tiles.

    The tile's first entity is `begin` in the numbers of `known`.
    """
    place, end = places[i], begin + np.uint64(size)
    while place < stop and known[place] < end:
        bits &= ~(_ONE << (known[place] - begin))
        place += 1
    places[i] = place
    return bits


@njit(inline="always")
def _find_known(known, lows, highs, bases, first_query, num_queries, first, places):  # type: ignore[no-untyped-def]
    for i in range(first_query, first_query + num_queries):
        places[i] = _first_not_below(known, lows[i], highs[i], bases[i] + np.uint64(first))


@njit(cache=True, nogil=True)
def compare_tiles(  # type: ignore[no-untyped-def]
    low, high, similarity, lanes, size, steps, width, first, tiles, counted, queries, scales, lows, highs, bases,
    known, places, truth, true_scores, counts
):  # fmt: skip
    """Count how the entities of tiles, the first of which is `first`, compare with the true ones of groups low to high.

    Args:
        places: int64 (g GROUP,), room to work in.
        truth, true_scores: int64, float32 (g GROUP,): true entities, which are not compared with themselves.
        counts: int64 (4, g GROUP): scores above the true one's, equal to it, all that were compared, and those of them
            that are NaN or infinite.
    """
    scores = np.empty(GROUP * size, np.float32)
    _find_known(known, lows, highs, bases, low * GROUP, (high - low) * GROUP, first, places)
    for tile in range(len(counted)):
        begin = first + tile * size
        for group in range(low, high):
            at = group * GROUP * width
            _score_group(similarity, lanes, size, steps, width, queries, at, scales, tiles, tile * width * size, scores)
            for k in range(GROUP):
                i = group * GROUP + k
                bits = _without_known(counted[tile], known, places, i, highs[i], bases[i] + np.uint64(begin), size)
                own = truth[i] - begin
                if 0 <= own < size:
                    bits &= ~(_ONE << np.uint64(own))
                found = load(lanes, scores, k * size, size)
                counts[0, i] += num_bits(lanes_above(found, true_scores[i]) & bits)
                counts[1, i] += num_bits(lanes_equal(found, true_scores[i]) & bits)
                counts[2, i] += num_bits(bits)
                counts[3, i] += num_bits(lanes_not_finite(found) & bits)


@njit(cache=True, nogil=True)
def score_rows(low, high, similarity, lanes, size, steps, square, side, queries, scales, rows, scores):  # type: ignore[no-untyped-def]
    """Score rows with a query of their own each: rows i K to (i + 1) K - 1 with query i, low to high - 1.

    Args:
        queries, scales: float32 (n, w), flat; scales may be None.
        rows: float32 (n K, w).
        scores: float32 (n, K).
    """
    width, each = rows.shape[1], scores.shape[1]
    tile, dots = np.zeros(width * size, np.float32), np.empty(size, np.float32)
    second = width - steps
    for i in range(low, high):
        for first in range(0, each, size):
            count = min(size, each - first)
            lay_out(square, side, rows, i * each + first, count, tile, 0, size)
            total = zeros(lanes)
            for j in range(steps):
                x, y = load(lanes, tile, j * size, size), load(lanes, tile, (j + second) * size, size)
                at = i * width + j
                total = _add(similarity, lanes, total, queries, scales, at, second, x, y)
            store(lanes, dots, 0, total, size)
            for lane in range(count):
                scores[i, first + lane] = dots[lane]


@njit(inline="always")
def _comes_before(score, number, other_score, other):  # type: ignore[no-untyped-def]
    return score > other_score or (score == other_score and number < other)


@njit(inline="always")
def _replace_last(best, numbers, score, number):  # type: ignore[no-untyped-def]
    """Replace the last of a heap, whose root comes after all others."""
    at, count = 0, len(best)
    while True:
        child = 2 * at + 1
        if child >= count:
            break
        if child + 1 < count and _comes_before(best[child], numbers[child], best[child + 1], numbers[child + 1]):
            child += 1
        if _comes_before(best[child], numbers[child], score, number):
            break
        best[at], numbers[at] = best[child], numbers[child]
        at = child
    best[at], numbers[at] = score, number


@njit(cache=True, nogil=True)
def keep_best(  # type: ignore[no-untyped-def]
    low, high, similarity, lanes, size, steps, width, first, tiles, counted, queries, scales, lows, highs, bases,
    known, places, best, numbers, bad
):  # fmt: skip
    """Keep the k best entities of each query, a heap whose root is the worst of them; ties by the smaller number.

    Args:
        best, numbers: float32, int64 (g GROUP, k): at first -infinity, and a number above all entities'.
        bad: int64 (g GROUP,): scores that are NaN or infinite.
    """
    scores = np.empty(GROUP * size, np.float32)
    _find_known(known, lows, highs, bases, low * GROUP, (high - low) * GROUP, first, places)
    for tile in range(len(counted)):
        begin = first + tile * size
        for group in range(low, high):
            at = group * GROUP * width
            _score_group(similarity, lanes, size, steps, width, queries, at, scales, tiles, tile * width * size, scores)
            for k in range(GROUP):
                i = group * GROUP + k
                bits = _without_known(counted[tile], known, places, i, highs[i], bases[i] + np.uint64(begin), size)
                found = load(lanes, scores, k * size, size)
                bad[i] += num_bits(lanes_not_finite(found) & bits)
                bits &= lanes_above(found, best[i, 0]) | lanes_equal(found, best[i, 0])
                while bits:
                    lane = lowest_bit(bits)
                    bits &= bits - _ONE
                    score, number = scores[k * size + lane], begin + lane
                    if _comes_before(score, number, best[i, 0], numbers[i, 0]):
                        _replace_last(best[i], numbers[i], score, number)
