"""How similar complex queries are to one row each, and the gradients: what `rows.py` is for all with all.

Kernels take one thread and no lock. Without them a training of RotatE takes 18 % longer (64 negatives, w = 400, one
thread with AVX-512, November 2026); the other similarities gain nothing over torch's functions.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from models.kernels.simd.vector import WIDEST, WIDTHS, Lanes, load, splat, storage, store, total, zeros
from models.kernels.similarity.loops import inverse_lengths, lengths

_MINUS_ONE, _HALF = np.float32(-1), np.float32(0.5)
_MOST_LANES = min(WIDEST, 128)


def complex_pair_scores(queries: Tensor, others: Tensor) -> Tensor:
    """Return the scores (n,) of queries (n, w) with others (n, w), float32 on the CPU."""
    scores = torch.empty(len(queries))
    _score(*_shape(queries.shape[1]), *(storage(array.contiguous()) for array in (queries, others, scores)))
    return scores


def complex_pair_gradients(queries: Tensor, others: Tensor, slopes: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of queries and others."""
    by_queries, by_others = torch.empty(queries.shape), torch.empty(queries.shape)
    arrays = (queries, others, slopes, by_queries, by_others)
    _pull(*_shape(queries.shape[1]), *(storage(array.contiguous()) for array in arrays))
    return by_queries, by_others


@cache
def _shape(width: int) -> tuple[Any, ...]:
    half = width // 2
    size = next((lanes for lanes in WIDTHS if half <= lanes <= _MOST_LANES), _MOST_LANES)
    return Lanes(size), Lanes(size, True), size, half


@njit(inline="always")
def _scores(lanes, used, half, queries, others, at):  # type: ignore[no-untyped-def]
    d = load(lanes, queries, at, used) - load(lanes, others, at, used)
    e = load(lanes, queries, at + half, used) - load(lanes, others, at + half, used)
    return lengths(None, d, e) * _HALF


@njit(cache=True, nogil=True)
def _score(lanes, partly, size, half, queries, others, scores):  # type: ignore[no-untyped-def]
    whole = half - half % size
    for i in range(len(scores)):
        begin, sums = 2 * i * half, zeros(lanes)
        for at in range(begin, begin + whole, size):
            sums = sums + _scores(lanes, size, half, queries, others, at)
        if whole < half:
            sums = sums + _scores(partly, half - whole, half, queries, others, begin + whole)
        scores[i] = -total(sums)


@njit(inline="always")
def _gradients(lanes, used, half, queries, others, slope, at, by_queries, by_others):  # type: ignore[no-untyped-def]
    d = load(lanes, queries, at, used) - load(lanes, others, at, used)
    e = load(lanes, queries, at + half, used) - load(lanes, others, at + half, used)
    pull = slope * _HALF * inverse_lengths(d, e)
    store(lanes, by_others, at, pull * d, used)
    store(lanes, by_others, at + half, pull * e, used)
    store(lanes, by_queries, at, pull * d * _MINUS_ONE, used)
    store(lanes, by_queries, at + half, pull * e * _MINUS_ONE, used)


@njit(cache=True, nogil=True)
def _pull(lanes, partly, size, half, queries, others, slopes, by_queries, by_others):  # type: ignore[no-untyped-def]
    whole = half - half % size
    for i in range(len(slopes)):
        slope, begin = splat(lanes, slopes[i]), 2 * i * half
        for at in range(begin, begin + whole, size):
            _gradients(lanes, size, half, queries, others, slope, at, by_queries, by_others)
        if whole < half:
            _gradients(partly, half - whole, half, queries, others, slope, begin + whole, by_queries, by_others)
