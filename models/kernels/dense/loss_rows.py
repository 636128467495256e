"""Losses of rows of scores and their gradients over the scores, in one pass, where torch passes four times over them:
binary cross entropy of scores that are all false, and shares in the sum of their exponentials."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.nn.functional import softplus

from models.kernels.simd.exponentials import exp, log
from models.kernels.simd.vector import (
    Lanes,
    has_kernels,
    largest_of,
    load,
    maximum,
    minimum,
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
_ONE = np.float32(1)


def false_loss_(scores: Tensor, weight: float, margin: float = 0.0, adversarial: float = 0.0) -> Tensor:
    """Return the sum over rows of weight * sum_k w_k log(1 + e^(s_k + margin)), its gradient in the scores' place.

    w are the shares of e^(adversarial s) in their sum, constants to the gradient; a score of -infinity has none, and a
    gradient of 0.

    Args:
        scores: float32 (n, K), contiguous. On the CPU they go through one loop, anything else through torch.
        weight: of a row.
        margin: added to scores.
        adversarial: 0: all scores that count have the same share.
    """
    if not has_kernels(scores) or scores.dtype != torch.float32:
        counts = torch.isfinite(scores)
        if adversarial:
            shares = torch.softmax(torch.where(counts, adversarial * scores, scores), 1).nan_to_num_(0)
        else:
            shares = counts / counts.sum(1, keepdim=True).clamp(min=1).to(scores.dtype)
        shares = shares.mul_(weight)
        scores += margin
        loss = (shares * softplus(scores)).sum()
        scores.sigmoid_().mul_(shares)
        return loss
    assert scores.is_contiguous(), "gradients take the place of scores that lie one behind the other"
    sharp, losses = np.float32(adversarial) if adversarial else None, np.empty(len(scores))
    arguments = scores.shape[1], storage(scores), np.float32(weight), np.float32(margin), sharp, losses
    run_rows(_false_loss, even_rows(len(scores)), Lanes(_LANES), *arguments)
    return torch.tensor(losses.sum(), dtype=torch.float32)


@njit(inline="always")
def _counted(lanes, x, most, sharp):  # type: ignore[no-untyped-def]
    """Return what scores count before they are divided by the sum: those of -infinity nothing."""
    if sharp is not None:
        count = exp((x - most) * sharp)
    else:
        count = splat(lanes, _ONE)
    return count - where_positive(_LEAST - x, count)


@njit(inline="always")
def _slopes(lanes, x, shares):  # type: ignore[no-untyped-def]
    """Return the loss of scores, and its gradient, by lanes."""
    power = exp(minimum(x, zeros(lanes) - x))
    loss = (maximum(x, zeros(lanes)) + log(power + _ONE)) * shares
    return loss, shares / (exp(zeros(lanes) - x) + _ONE)


@njit(cache=True, nogil=True)
def _false_loss(low, high, lanes, width, scores, weight, margin, sharp, losses):  # type: ignore[no-untyped-def]
    whole = width - width % _LANES
    left = width - whole
    room = np.full(2 * _LANES, -np.inf, np.float32)  # two vectors, for scores that make no whole one
    for i in range(low, high):
        at = i * width
        most = _LEAST
        for k in range(left):
            room[k] = scores[at + whole + k]
        last = load(lanes, room, 0, _LANES)
        if sharp is not None:
            largest = last
            for k in range(at, at + whole, _LANES):
                largest = maximum(load(lanes, scores, k, _LANES), largest)
            most = max(most, largest_of(largest))
        counted = zeros(lanes)
        for k in range(at, at + whole, _LANES):
            counted = counted + _counted(lanes, load(lanes, scores, k, _LANES), most, sharp)
        if left:
            counted = counted + _counted(lanes, last, most, sharp)
        all_counted = total(counted)
        share = weight / all_counted if all_counted != 0 else np.float32(0)
        summed = zeros(lanes)
        for k in range(at, at + whole, _LANES):
            x = load(lanes, scores, k, _LANES)
            costs, slopes = _slopes(lanes, x + margin, _counted(lanes, x, most, sharp) * share)
            store(lanes, scores, k, slopes, _LANES)
            summed = summed + costs
        if left:
            costs, slopes = _slopes(lanes, last + margin, _counted(lanes, last, most, sharp) * share)
            store(lanes, room, _LANES, slopes, _LANES)
            for k in range(left):
                scores[at + whole + k] = room[_LANES + k]
            summed = summed + costs
        losses[i] = total(summed)


def softmax_(scores: Tensor, beside: Tensor | None = None) -> Tensor:
    """Put e^s / (sum e^s + e^beside) in the place of scores, and return the logarithms of the sums, (n,).

    Args:
        scores: float32 (n, K), contiguous; a score of -infinity gets a share of 0. On the CPU they go through one loop,
            anything else through torch.
        beside: a score more of each row, (n,), whose share is left out.
    """
    if not has_kernels(scores) or scores.dtype != torch.float32:
        sums = scores.logsumexp(1)
        sums = sums if beside is None else torch.logaddexp(sums, beside)
        scores.sub_(sums[:, None]).exp_()
        return sums
    assert scores.is_contiguous(), "shares take the place of scores that lie one behind the other"
    sums = torch.empty(len(scores))
    width = scores.shape[1]
    whole = width - width % _LANES
    extra = None if beside is None else storage(beside)
    shapes = Lanes(_LANES), Lanes(_LANES, partly=True)
    run_rows(_softmax, even_rows(len(sums)), *shapes, width, whole, storage(scores), extra, storage(sums))
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
