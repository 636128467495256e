"""The loops of `rows.py`.

Arrays of queries, candidates, scores and what belongs to them are flat; queries come in whole tiles. Which distance it
is, is told by what is not None: `squares` where squares of numbers are summed, `half` where numbers are complex, their
imaginary parts `half` columns behind the real ones; else absolute values.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.row_tiles import (
    LEAST,
    absolute,
    lay_out,
    load_rows,
    multiply_add,
    repeated,
    rough_reciprocal_root,
    sign,
    spread_rows,
    store_rows,
    sum_of_products,
    zero_rows,
)
from models.kernels.simd.vector import load, store, zeros

_TINY = np.float32(LEAST)
_THREE, _MINUS_ONE, _MINUS_HALF, _ZERO = np.float32(3), np.float32(-1), np.float32(-0.5), np.float32(0)


@njit(inline="always")
def lengths(squares, d, e):  # type: ignore[no-untyped-def]
    """Return what is summed of differences; of complex ones d + ie twice their length."""
    if e is not None:
        square = d * d + (e * e + _TINY)
        guess = rough_reciprocal_root(square)
        root = square * guess
        return root * (_THREE - root * guess)  # Newton's step makes 14 bits 27
    if squares is not None:
        return d * d
    return absolute(d)


@njit(inline="always")
def inverse_lengths(d, e):  # type: ignore[no-untyped-def]
    """Return twice 1 / length of complex differences d + ie."""
    square = d * d + (e * e + _TINY)
    guess = rough_reciprocal_root(square)
    return guess * (_THREE - square * guess * guess)


@njit(inline="always")
def _less(tile, queries, scales, at, width, candidate):  # type: ignore[no-untyped-def]
    q = spread_rows(tile, queries, at, width)
    if scales is not None:
        return q - spread_rows(tile, scales, at, width) * repeated(tile, candidate)
    return q - repeated(tile, candidate)


@njit(inline="always")
def _score(tile, lanes, size, squares, half, width, queries, scales, at, columns):  # type: ignore[no-untyped-def]
    """Return a tile's scores; of squares their sum."""
    sums = zero_rows(tile)
    if half is not None:
        for j in range(half):
            d = _less(tile, queries, scales, at + j, width, load(lanes, columns, j * size, size))
            e = _less(tile, queries, scales, at + half + j, width, load(lanes, columns, (half + j) * size, size))
            sums = sums + lengths(squares, d, e)
        return sums * _MINUS_HALF
    for j in range(width):
        d = _less(tile, queries, scales, at + j, width, load(lanes, columns, j * size, size))
        sums = sums + lengths(squares, d, None)
    if squares is not None:
        return sums
    return sums * _MINUS_ONE


@njit(cache=True, nogil=True)
def score_pairs(  # type: ignore[no-untyped-def]
    tile, height, lanes, size, square, side, squares, half, queries, candidates, scales, columns, scores
):
    """Set scores (G, K) of all queries with all candidates float32 (K, w), `size` of them a time.

    Those candidates are laid out column by column, so that a vector holds a column of all of them: no sum over lanes.

    Args:
        columns: float32 (w size,), room to work in.
        scores: of squares their sums.
    """
    count, width = candidates.shape
    for first in range(0, count, size):
        number = min(size, count - first)
        if number < size:
            columns[:] = np.float32(0)
        lay_out(square, side, candidates, first, number, columns, 0, size)
        for i in range(0, len(scores) // count, height):
            sums = _score(tile, lanes, size, squares, half, width, queries, scales, i * width, columns)
            store_rows(tile, scores, i * count + first, count, sums, number)


@njit(inline="always")
def directions(squares, d):  # type: ignore[no-untyped-def]
    """Return which way real differences pull: of squares themselves, which are yet to be divided by the distance."""
    if squares is not None:
        return d
    return sign(d)


@njit(inline="always")
def _pull_real(  # type: ignore[no-untyped-def]
    tile, lanes, size, squares, width, queries, scales, slopes, at, first, number, room, near, moved, by_queries,
    by_scales, used
):  # fmt: skip
    """Add what a tile's queries and a block's candidates have of each other, in some columns."""
    q, change, stretch = load_rows(tile, queries, at, width, used), zero_rows(tile), zero_rows(tile)
    if scales is not None:
        s = load_rows(tile, scales, at, width, used)
    for k in range(number):
        c, slope = load(lanes, near, k * size, size), spread_rows(tile, slopes, first + k, room)
        before = load(lanes, moved, k * size, size)
        if scales is not None:
            pull = slope * directions(squares, q - s * repeated(tile, c))
            change = change + pull
            stretch = multiply_add(pull, repeated(tile, c), stretch)
            after = sum_of_products(tile, pull, s, before)
        else:
            d = directions(squares, q - repeated(tile, c))
            change = multiply_add(slope, d, change)
            after = sum_of_products(tile, slope, d, before)
        store(lanes, moved, k * size, after, size)
    store_rows(tile, by_queries, at, width, load_rows(tile, by_queries, at, width, used) - change, used)
    if scales is not None:
        store_rows(tile, by_scales, at, width, load_rows(tile, by_scales, at, width, used) + stretch, used)


@njit(inline="always")
def _pull_complex(  # type: ignore[no-untyped-def]
    tile, lanes, size, half, width, queries, slopes, at, first, number, room, near, moved, by_queries, used
):  # fmt: skip
    """Do the same with complex numbers."""
    behind = at + half
    q, p = load_rows(tile, queries, at, width, used), load_rows(tile, queries, behind, width, used)
    change, turn = zero_rows(tile), zero_rows(tile)
    for k in range(number):
        real, imaginary = 2 * k * size, (2 * k + 1) * size
        d = q - repeated(tile, load(lanes, near, real, size))
        e = p - repeated(tile, load(lanes, near, imaginary, size))
        slope = spread_rows(tile, slopes, first + k, room) * inverse_lengths(d, e)
        change, turn = multiply_add(slope, d, change), multiply_add(slope, e, turn)
        store(lanes, moved, real, sum_of_products(tile, slope, d, load(lanes, moved, real, size)), size)
        store(lanes, moved, imaginary, sum_of_products(tile, slope, e, load(lanes, moved, imaginary, size)), size)
    store_rows(tile, by_queries, at, width, load_rows(tile, by_queries, at, width, used) - change, used)
    store_rows(tile, by_queries, behind, width, load_rows(tile, by_queries, behind, width, used) - turn, used)


@njit(cache=True, nogil=True, error_model="numpy")
def divide_slopes(slopes, scores, norms):  # type: ignore[no-untyped-def]
    """Set `norms`, longer perhaps, to slopes over minus the scores: 0 at a score of 0."""
    for i in range(len(slopes)):
        distance = -scores[i]
        norms[i] = slopes[i] / distance if distance != 0 else _ZERO
    norms[len(slopes) :] = _ZERO


@njit(cache=True, nogil=True)
def pull_pairs(  # type: ignore[no-untyped-def]
    tile, height, lanes, partly, size, block, squares, half, width, queries, candidates, scales, slopes, near, moved,
    by_queries, by_candidates, by_scales
):  # fmt: skip
    """Set the gradients of candidates, and add those of queries and scales, which are zeros.

    A block of candidates meets all queries in `size` columns at a time: these are copied and stay in the first-level
    cache, as what their gradients sum up to.

    Args:
        block: candidates of a block.
        slopes: float32 (G K,): of scores; of squares over minus the distance; of complex numbers half of them.
        near, moved: float32 (2 block size,), room to work in.
    """
    count, steps, parts = len(candidates) // width, width, 1
    if half is not None:
        steps, parts = half, 2
    for low in range(0, count, block):
        number = min(block, count - low)
        for column in range(0, steps, size):
            used = min(size, steps - column)
            for k in range(number):
                for part in range(parts):
                    at = (low + k) * width + part * steps + column
                    store(lanes, near, (parts * k + part) * size, load(partly, candidates, at, used), size)
                    store(lanes, moved, (parts * k + part) * size, zeros(lanes), size)
            for i in range(0, len(queries) // width, height):
                at, first = i * width + column, i * count + low
                if half is not None:
                    _pull_complex(
                        tile, lanes, size, half, width, queries, slopes, at, first, number, count, near, moved,
                        by_queries, used
                    )  # fmt: skip
                else:
                    _pull_real(
                        tile, lanes, size, squares, width, queries, scales, slopes, at, first, number, count, near,
                        moved, by_queries, by_scales, used
                    )  # fmt: skip
            for k in range(number):
                for part in range(parts):
                    at = (low + k) * width + part * steps + column
                    store(partly, by_candidates, at, load(lanes, moved, (parts * k + part) * size, size), used)
