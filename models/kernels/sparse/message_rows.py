"""The loops of `message.py` over rows: messages are made again wherever they are needed and never stored.

`term` holds the edges' rows, or one row for each of their `codes`, or is None. Means weigh the messages of a
destination by softmax, e^(beta m - log sum e^(beta m)).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.exponentials import exp, log
from models.kernels.simd.vector import ask_ahead, load, maximum, splat, store, where_positive, zeros
from models.kernels.sparse.ranges import range_number

_CHUNK = 32
"""Edges whose maximum is taken before their exponentials: their rows stay in the first- or second-level cache."""
_ONE = np.float32(1)


@njit(cache=True, nogil=True)
def sum_rows(low, high, lanes, count, column, stride, indptr, indices, x, term, codes, y):  # type: ignore[no-untyped-def]
    """y_v = sum ReLU(x_u + e_uv)."""
    last = indptr[high]
    for row in range(low, high):
        acc = zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, x, indices, e, last, stride, column)
            value = load(lanes, x, np.int64(indices[e]) * stride + column, count)
            if term is not None:
                at = np.int64(e if codes is None else codes[e])
                value = value + load(lanes, term, at * stride + column, count)
            acc = acc + where_positive(value, value)
        store(lanes, y, row * stride + column, acc, count)


@njit(cache=True, nogil=True)
def sum_rows_backward(  # type: ignore[no-untyped-def]
    low, high, lanes, count, column, stride, indptr, indices, edges, x, term, codes, grad, bounds, grad_x, grad_term,
):  # fmt: skip
    """Go over the sources: dx_u = sum_v [x_u + e_uv > 0] dy_v, and the edges' own."""
    last = indptr[high]
    part = range_number(bounds, low) if low < high else 0
    base = part * (len(grad_term) // (len(bounds) - 1))
    for row in range(low, high):
        source = load(lanes, x, row * stride + column, count)
        acc = zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, grad, indices, e, last, stride, column)
            if codes is None and term is not None:
                ask_ahead(lanes, term, edges, e, last, stride, column)
            change = load(lanes, grad, np.int64(indices[e]) * stride + column, count)
            if term is not None:
                at = np.int64(edges[e] if codes is None else codes[edges[e]]) * stride + column
                change = where_positive(source + load(lanes, term, at, count), change)
                if codes is None:
                    store(lanes, grad_term, at, change, count)
                else:
                    store(lanes, grad_term, base + at, load(lanes, grad_term, base + at, count) + change, count)
            acc = acc + change
        if term is None:
            acc = where_positive(source, acc)
        store(lanes, grad_x, row * stride + column, acc, count)


@njit(cache=True, nogil=True)
def mean_rows(  # type: ignore[no-untyped-def]
    low, high, lanes, count, column, stride, indptr, indices, x, term, codes, eps, beta, y, log_sums
):
    """Softmax a chunk of edges at a time: where the largest exponent grows, what was summed shrinks."""
    last, sign = indptr[high], np.float32(np.sign(beta))
    for row in range(low, high):
        begin, end = indptr[row], indptr[row + 1]
        acc, weights, largest = zeros(lanes), zeros(lanes), splat(lanes, np.float32(-np.inf))
        for start in range(begin, end, _CHUNK):
            stop = min(start + _CHUNK, end)
            extreme = splat(lanes, np.float32(-np.inf))  # of sign * message: exponents grow with it
            for e in range(start, stop):
                ask_ahead(lanes, x, indices, e, last, stride, column)
                value = load(lanes, x, np.int64(indices[e]) * stride + column, count)
                if term is not None:
                    at = np.int64(e if codes is None else codes[e])
                    value = value + load(lanes, term, at * stride + column, count)
                extreme = maximum(extreme, (where_positive(value, value) + eps) * sign)
            top = maximum(extreme * sign * beta, largest)
            shrunk = exp(largest - top)
            acc, weights, largest = acc * shrunk, weights * shrunk, top
            for e in range(start, stop):
                value = load(lanes, x, np.int64(indices[e]) * stride + column, count)
                if term is not None:
                    at = np.int64(e if codes is None else codes[e])
                    value = value + load(lanes, term, at * stride + column, count)
                value = where_positive(value, value) + eps
                weight = exp(value * beta - largest)
                weights = weights + weight
                acc = acc + weight * value
        store(lanes, y, row * stride + column, acc / weights if begin < end else acc, count)
        store(lanes, log_sums, row * stride + column, largest + log(weights), count)


@njit(cache=True, nogil=True)
def mean_rows_backward(  # type: ignore[no-untyped-def]
    low, high, lanes, count, column, stride, indptr, indices, edges, x, term, codes, eps, beta,
    grad, y, log_sums, bounds, grad_x, grad_term, shares,
):  # fmt: skip
    """Go over the sources; with w = e^(beta m - log sum), a message's gradient is w dy (1 + beta (m - y)).

    `shares` receives each range's sum of w dy (m - y)^2, the gradient of beta. (m (m - y) sums up to the same as the
    square, but not where y was rounded.)
    """
    last = indptr[high]
    part = range_number(bounds, low) if low < high else 0
    base = part * (len(grad_term) // (len(bounds) - 1))
    whole = zeros(lanes)
    for row in range(low, high):
        source = load(lanes, x, row * stride + column, count)
        acc, share = zeros(lanes), zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, grad, indices, e, last, stride, column)
            ask_ahead(lanes, y, indices, e, last, stride, column)
            ask_ahead(lanes, log_sums, indices, e, last, stride, column)
            if codes is None and term is not None:
                ask_ahead(lanes, term, edges, e, last, stride, column)
            target = np.int64(indices[e]) * stride + column
            position = np.int64(0)
            value = source
            if term is not None:
                position = np.int64(edges[e] if codes is None else codes[edges[e]]) * stride + column
                value = source + load(lanes, term, position, count)
            message = where_positive(value, value) + eps
            mean = load(lanes, y, target, count)
            change = load(lanes, grad, target, count)
            change = change * exp(message * beta - load(lanes, log_sums, target, count))
            beyond = message - mean
            share = share + change * beyond * beyond
            change = change * (beyond * beta + _ONE)
            change = where_positive(value, change)
            acc = acc + change
            if term is not None:
                if codes is None:
                    store(lanes, grad_term, position, change, count)
                else:
                    kept = load(lanes, grad_term, base + position, count)
                    store(lanes, grad_term, base + position, kept + change, count)
        whole = whole + share
        store(lanes, grad_x, row * stride + column, acc, count)
    if low < high:
        store(lanes, shares, part * stride + column, whole, count)
