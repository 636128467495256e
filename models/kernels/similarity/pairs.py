"""How similar queries are to one row each, and the gradients: what `rows.py` is for all with all.

Kernels take one thread and no lock. Milliseconds of scores and gradients of 512 pairs, w = 200 (complex: 400), one
thread of a shared virtual machine with AVX-512 (Sapphire Rapids, November 2026):

| | | torch |
|---|---|---|
| dot | 0.02 + 0.05 | 0.02 + 0.03 |
| l1 | 0.02 + 0.05 | 0.03 + 0.05 |
| l1 with a scale | 0.03 + 0.10 | 0.07 + 0.14 |
| l2 | 0.02 + 0.07 | 0.04 + 0.11 |
| complex | 0.04 + 0.14 | 0.16 + 0.83 |
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.simd.vector import WIDEST, WIDTHS, Lanes, load, splat, storage, store, total, zeros
from models.kernels.similarity.loops import directions, divide_slopes, inverse_lengths, lengths

_MINUS_ONE, _HALF = np.float32(-1), np.float32(0.5)
_MOST_LANES = min(WIDEST, 128)


def pair_scores(kind: str, queries: Tensor, others: Tensor, scale: Tensor | None) -> Tensor:
    """Return the scores (n,) of queries (n, w) with others (n, w), float32 on the CPU."""
    scores = torch.empty(len(queries))
    arrays = queries, others, scale, scores
    _score(*_shape(kind, queries.shape[1]), *(_flat(array) for array in arrays))
    return scores


def pair_gradients(
    kind: str, queries: Tensor, others: Tensor, slopes: Tensor, scale: Tensor | None, scores: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of queries, others and scale; `scores` as `pair_scores` returned them, for l2 alone."""
    if kind == "l2":
        known = pair_scores(kind, queries, others, scale) if scores is None else scores
        over_distances = torch.empty(len(slopes))
        divide_slopes(*(storage(array.contiguous()) for array in (slopes, known, over_distances)))
        slopes = over_distances
    by_queries, by_others = torch.empty(queries.shape), torch.empty(queries.shape)
    by_scale = None if scale is None else torch.empty(queries.shape)
    given, found = (queries, others, scale, slopes), (by_queries, by_others, by_scale)
    _pull(*_shape(kind, queries.shape[1]), *(_flat(array) for array in (*given, *found)))
    return found


@cache
def _shape(kind: str, width: int) -> tuple[Any, ...]:
    """Return the kernels' first arguments."""
    steps = width // 2 if kind == "complex" else width
    size = next((lanes for lanes in WIDTHS if steps <= lanes <= _MOST_LANES), _MOST_LANES)
    flags = (True if kind == name else None for name in ("dot", "l2", "complex"))
    return Lanes(size), Lanes(size, True), size, *flags, width, steps


def _flat(rows: Tensor | None) -> NDArray[Any] | None:
    return None if rows is None else storage(rows.contiguous())


@njit(inline="always")
def _scores(lanes, used, products, squares, turned, steps, queries, others, scales, at):  # type: ignore[no-untyped-def]
    """Return some columns' part of the score of a pair, or of a distance."""
    q, o = load(lanes, queries, at, used), load(lanes, others, at, used)
    if products is not None:
        return q * o
    if turned is not None:
        d, e = q - o, load(lanes, queries, at + steps, used) - load(lanes, others, at + steps, used)
        return lengths(squares, d, e) * _HALF
    d = q - o if scales is None else q - load(lanes, scales, at, used) * o
    return lengths(squares, d, None)


@njit(cache=True, nogil=True)
def _score(  # type: ignore[no-untyped-def]
    lanes, partly, size, products, squares, turned, width, steps, queries, others, scales, scores
):
    whole = steps - steps % size
    for i in range(len(scores)):
        found = zeros(lanes)
        for at in range(i * width, i * width + whole, size):
            found = found + _scores(lanes, size, products, squares, turned, steps, queries, others, scales, at)
        if whole < steps:
            at, used = i * width + whole, steps - whole
            found = found + _scores(partly, used, products, squares, turned, steps, queries, others, scales, at)
        if products is not None:
            scores[i] = total(found)
        elif squares is not None:
            scores[i] = -np.sqrt(total(found))
        else:
            scores[i] = -total(found)


@njit(inline="always")
def _gradients(  # type: ignore[no-untyped-def]
    lanes, used, products, squares, turned, steps, queries, others, scales, slope, at, by_queries, by_others, by_scales
):
    """Set the gradients of some columns of a pair."""
    q, o = load(lanes, queries, at, used), load(lanes, others, at, used)
    if products is not None:
        store(lanes, by_queries, at, slope * o, used)
        store(lanes, by_others, at, slope * q, used)
    elif turned is not None:
        d, e = q - o, load(lanes, queries, at + steps, used) - load(lanes, others, at + steps, used)
        pull = slope * _HALF * inverse_lengths(d, e)
        store(lanes, by_others, at, pull * d, used)
        store(lanes, by_others, at + steps, pull * e, used)
        store(lanes, by_queries, at, pull * d * _MINUS_ONE, used)
        store(lanes, by_queries, at + steps, pull * e * _MINUS_ONE, used)
    else:
        d = q - o if scales is None else q - load(lanes, scales, at, used) * o
        pull = slope * directions(squares, d)
        store(lanes, by_queries, at, pull * _MINUS_ONE, used)
        if scales is None:
            store(lanes, by_others, at, pull, used)
        else:
            store(lanes, by_others, at, pull * load(lanes, scales, at, used), used)
            store(lanes, by_scales, at, pull * o, used)


@njit(cache=True, nogil=True)
def _pull(  # type: ignore[no-untyped-def]
    lanes, partly, size, products, squares, turned, width, steps, queries, others, scales, slopes, by_queries,
    by_others, by_scales
):  # fmt: skip
    """Set the gradients of all pairs; `slopes`: of squares over the distance."""
    whole = steps - steps % size
    for i in range(len(slopes)):
        slope = splat(lanes, slopes[i])
        for at in range(i * width, i * width + whole, size):
            _gradients(
                lanes, size, products, squares, turned, steps, queries, others, scales, slope, at, by_queries,
                by_others, by_scales
            )  # fmt: skip
        if whole < steps:
            _gradients(
                partly, steps - whole, products, squares, turned, steps, queries, others, scales, slope,
                i * width + whole, by_queries, by_others, by_scales
            )  # fmt: skip
