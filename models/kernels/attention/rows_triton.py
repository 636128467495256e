"""What the attention kernels in Triton share: a program's shape, rows of a head, dropout, the running softmax."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from models.kernels.attention.edge_dropout import EdgeDropout

EDGES = 16
"""Edges of a block: with 64 columns, 1024 numbers in a warp or two."""


def sizes(heads: int, dim: int, rule: EdgeDropout) -> dict[str, Any]:
    """Return what kernels are compiled for: the shape, padded to a power of two, and whether weights are dropped."""
    width = max(16, triton.next_power_of_2(dim))
    warps = 1 if width <= 32 else 2 if width <= 128 else 4
    return {"H": heads, "D": dim, "EDGES": EDGES, "WIDTH": width, "DROPS": rule.threshold > 0, "num_warps": warps}


@triton.jit
def _mix(word):  # type: ignore[no-untyped-def]
    word = (word ^ (word >> 16)) * tl.full([], 0x85EBCA6B, tl.uint32)
    word = (word ^ (word >> 13)) * tl.full([], 0xC2B2AE35, tl.uint32)
    return word ^ (word >> 16)


@triton.jit
def kept(counter, low, high, threshold):  # type: ignore[no-untyped-def]
    """Return whether the weight of a counter is kept, by the hash of `edge_dropout`."""
    word = _mix(counter.to(tl.uint32) ^ tl.cast(low, tl.uint32))
    return _mix(word + tl.cast(high, tl.uint32)) >= tl.cast(threshold, tl.uint32)


@triton.jit
def load_row(x, row, D: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a row of D columns in float32, padded with 0 to (WIDTH,)."""
    columns = tl.arange(0, WIDTH)
    return tl.load(x + row * D + columns, mask=columns < D, other=0.0).to(tl.float32)


@triton.jit
def load_rows(x, rows, there, D: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return rows, (EDGES, WIDTH), likewise; 0 where they are not there."""
    columns = tl.arange(0, WIDTH)
    mask = there[:, None] & (columns < D)[None, :]
    return tl.load(x + rows[:, None] * D + columns[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def fold(  # type: ignore[no-untyped-def]
    acc, weights, largest, score, rows, counter, low, high, threshold, scale, DROPS: tl.constexpr
):
    """Add a block of edges to a softmax-weighted sum of rows; where the largest score grows, what was summed shrinks.

    Returns the sum, the sum of the weights, dropped ones included, and the largest score.
    """
    top = tl.maximum(largest, tl.max(score, 0))
    shrunk, weight = tl.exp(largest - top), tl.exp(score - top)
    weights = weights * shrunk + tl.sum(weight, 0)
    if DROPS:
        weight = tl.where(kept(counter, low, high, threshold), weight * scale, 0.0)
    return acc * shrunk + tl.sum(weight[:, None] * rows, 0), weights, top


@triton.jit
def store_sum(  # type: ignore[no-untyped-def]
    y, log_sums, at, acc, weights, largest, D: tl.constexpr, WIDTH: tl.constexpr
):
    """Store what `fold` came to: the weighted mean, and the logarithm of the sum of exponentials."""
    columns = tl.arange(0, WIDTH)
    mean = tl.where(weights > 0, acc / weights, acc)
    tl.store(y + at * D + columns, mean.to(y.dtype.element_ty), mask=columns < D)
    tl.store(log_sums + at, largest + tl.log(weights))
