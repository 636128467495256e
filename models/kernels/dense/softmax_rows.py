"""Shares of scores in the sum of their exponentials, row by row, over the scores: torch passes four times over them."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor

from models.kernels.simd.exponentials import exp
from models.kernels.simd.vector import (
    Lanes,
    has_kernels,
    largest_of,
    load,
    maximum,
    splat,
    storage,
    store,
    total,
    where_positive,
    zeros,
)
from models.kernels.threads import even_rows, run_rows

_LANES = 64
_LEAST = np.float32(-3.0e38)


def softmax_(scores: Tensor, beside: Tensor | None = None) -> Tensor:
    """Put e^s / (sum e^s + e^beside) in the place of scores, and return the logarithms of the sums, (n,).

    Args:
        scores: float32 (n, K), contiguous; a score of -infinity gets a share of 0. On the CPU they go through one loop,
            anything else through torch.
        beside: a score more of each row, (n,), whose share is left out.
    """
    if not has_kernels(scores) or scores.dtype != torch.float32:
        return _plain(scores, beside)
    assert scores.is_contiguous(), "shares take the place of scores that lie one behind the other"
    sums = torch.empty(len(scores))
    width = scores.shape[1]
    whole = width - width % _LANES
    extra = None if beside is None else storage(beside)
    shapes = Lanes(_LANES), Lanes(_LANES, partly=True)
    run_rows(_softmax, even_rows(len(sums)), *shapes, width, whole, storage(scores), extra, storage(sums))
    return sums


def _plain(scores: Tensor, beside: Tensor | None) -> Tensor:
    sums = scores.logsumexp(1)
    if beside is not None:
        sums = torch.logaddexp(sums, beside)
    scores.sub_(sums[:, None]).exp_()
    return sums


@njit(inline="always")
def _power(x, most):  # type: ignore[no-untyped-def]
    """Return e^(x - most), and 0 of -infinity."""
    power = exp(x - most)
    return power - where_positive(_LEAST - x, power)


@njit(cache=True, nogil=True)
def _softmax(low, high, lanes, partly, width, whole, scores, beside, sums):  # type: ignore[no-untyped-def]
    left = width - whole
    for i in range(low, high):
        at = i * width
        most = _LEAST if beside is None else max(beside[i], _LEAST)
        largest = splat(lanes, most)
        for k in range(at, at + whole, _LANES):
            largest = maximum(load(lanes, scores, k, _LANES), largest)
        most = max(most, largest_of(largest))
        for k in range(at + whole, at + width):
            most = max(most, scores[k])
        summed = zeros(lanes)
        for k in range(at, at + whole, _LANES):
            powers = _power(load(lanes, scores, k, _LANES), most)
            store(lanes, scores, k, powers, _LANES)
            summed = summed + powers
        all_powers = total(summed)
        if left:
            powers = _power(load(partly, scores, at + whole, left), most)
            store(partly, scores, at + whole, powers, left)
            for k in range(at + whole, at + width):
                all_powers += scores[k]
        if beside is not None:
            all_powers += np.exp(beside[i] - most)
        share = np.float32(1) / np.float32(all_powers)
        for k in range(at, at + whole, _LANES):
            store(lanes, scores, k, load(lanes, scores, k, _LANES) * share, _LANES)
        if left:
            store(partly, scores, at + whole, load(partly, scores, at + whole, left) * share, left)
        sums[i] = most + np.float32(np.log(all_powers))
