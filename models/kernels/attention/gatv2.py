"""GATv2's attention in one pass: each source row is read once forward; nothing of size E x H is ever stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from models.kernels.attention.edge_dropout import EdgeDropout, kept
from models.kernels.attention.heads import HeadTile, head_tiles, leaky, leaky_gradient, spread, sum_heads
from models.kernels.backends import choose, widen
from models.kernels.memory import empty
from models.kernels.simd.exponentials import exp
from models.kernels.simd.vector import (
    FAR,
    NEAR,
    Lanes,
    load,
    maximum,
    prefetch,
    prefetch_far,
    splat,
    storage,
    store,
    where_positive,
    zeros,
)
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.edge_softmax import reference_edge_softmax
from models.kernels.sparse.ranges import out_edges, range_number
from models.kernels.threads import run_rows

_WIDEST = 128
"""Columns of a tile: the backward keeps five rows at hand."""
_WIDEST_HEAD = 512
"""A score needs the whole head; wider vectors take the compiler minutes."""


def gatv2_attention(
    adj: Adjacency,
    x_src: Tensor,
    x_dst: Tensor,
    attn: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    key: int = 0,
) -> Tensor:
    """Aggregate with GATv2's attention (Brody et al., arXiv:2105.14491, eq. 7).

    y_vh = sum_{e = (u, v)} a_eh x_src_uh, a_eh = softmax_{e into v}(<attn_h, LeakyReLU(x_src_uh + x_dst_vh)>).

    Args:
        adj: the edges; several between the same two nodes count severally.
        x_src: float32 or bfloat16 (num_src, H, D); differentiable.
        x_dst: (num_dst, H, D) in the same dtype; differentiable.
        attn: (H, D); differentiable.
        negative_slope: LeakyReLU's.
        dropout: share of the a_eh set to zero after the softmax, from 0 to below 1; the others are divided by
            1 - dropout. Pass 0 in evaluation.
        key: which weights are dropped depends on (key, position of the edge, head) only.

    Returns:
        (num_dst, H, D) in x_src's dtype, accumulated in float32; 0 for destinations without in-edges. Kept for the
        backward are the inputs, the result and two numbers a destination and head; the attention is recomputed.
        Heads of more than 512 columns take plain torch, with the memory of all messages. On a CPU the last bits of
        attn's gradient depend on the number of threads.

    Raises:
        ValueError: shapes or dtypes that do not fit together.
    """
    check_ends(adj, x_src, x_dst, attn)
    rule = EdgeDropout.of(dropout, key)
    backend = choose(x_src)
    if backend == "torch" or not has_fused_heads(attn):
        sources, targets, shares = widen(x_src), widen(x_dst), widen(attn)
        return reference_gatv2_attention(adj, sources, targets, shares, negative_slope, dropout, key).to(x_src.dtype)
    if backend == "triton":
        from models.kernels.attention.gatv2_triton import gatv2_attention_triton

        return gatv2_attention_triton(adj, x_src, x_dst, attn.float(), negative_slope, rule)
    return _AttentionV2.apply(x_src, x_dst, attn.float(), adj, negative_slope, rule)  # type: ignore[no-untyped-call]


def check_ends(adj: Adjacency, x_src: Tensor, x_dst: Tensor, attn: Tensor) -> None:
    """Raise ValueError for shapes or dtypes that do not fit together."""
    shape = tuple(x_src.shape[1:])
    if x_src.shape != (adj.num_src, *shape) or x_dst.shape != (adj.num_dst, *shape) or attn.shape != shape:
        raise ValueError(
            f"x_src, x_dst and attn must be ({adj.num_src}, H, D), ({adj.num_dst}, H, D) and (H, D), not "
            f"{tuple(x_src.shape)}, {tuple(x_dst.shape)} and {tuple(attn.shape)}"
        )
    if x_src.dtype != x_dst.dtype:
        raise ValueError(f"x_src and x_dst must be of one dtype, not {x_src.dtype} and {x_dst.dtype}")


def reference_gatv2_attention(
    adj: Adjacency,
    x_src: Tensor,
    x_dst: Tensor,
    attn: Tensor,
    negative_slope: float = 0.2,
    dropout: float = 0.0,
    key: int = 0,
) -> Tensor:
    """Do `gatv2_attention` by gather and scatter, E x H x D messages and all."""
    rows, sources = adj.targets(), adj.indices.long()
    messages = x_src[sources]
    scores = (attn * F.leaky_relu(messages + x_dst[rows], negative_slope)).sum(2)
    weights = reference_edge_softmax(adj, scores)
    if dropout > 0:
        weights = weights * EdgeDropout.of(dropout, key).mask(weights)
    messages = (weights.unsqueeze(2) * messages).to(x_src.dtype)
    return x_src.new_zeros(adj.num_dst, *x_src.shape[1:]).index_add(0, rows, messages)


def has_fused_heads(attn: Tensor) -> bool:
    """Whether kernels take heads such as those of attn (H, D)."""
    return attn.shape[1] <= _WIDEST_HEAD and attn.numel() > 0


def tiles_of(x: Tensor) -> list[tuple[HeadTile, tuple[Any, ...]]]:
    """Return the tiles of rows (n, H, D), and what kernels are told of each."""
    heads, dim = x.shape[1:]
    return [(tile, tile.arguments(heads, dim)) for tile in head_tiles(heads, dim, _WIDEST, splits_heads=False)]


class _AttentionV2(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_src: Tensor, x_dst: Tensor, attn: Tensor, adj: Adjacency, slope: float, rule: EdgeDropout
    ) -> Tensor:
        x_src, x_dst, attn = x_src.contiguous(), x_dst.contiguous(), attn.contiguous()
        y = empty(x_dst.shape, x_dst.dtype)
        top, inverse = (torch.empty(x_dst.shape[:2], dtype=torch.float32) for _ in range(2))
        for _, tile in tiles_of(x_src):
            run_rows(
                _forward_rows, adj.chunks(), *tile, adj.indptr.numpy(), adj.indices.numpy(),
                storage(x_src), storage(x_dst), storage(attn), np.float32(slope), *rule.arguments(),
                storage(y), storage(top), storage(inverse),
            )  # fmt: skip
        ctx.save_for_backward(x_src, x_dst, attn, y, top, inverse)
        ctx.adj, ctx.slope, ctx.rule = adj, slope, rule
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x_src, x_dst, attn, y, top, inverse = ctx.saved_tensors
        adj, slope, rule = ctx.adj, np.float32(ctx.slope), ctx.rule.arguments()
        grad, (out, positions) = grad.contiguous(), out_edges(adj, ctx.rule.threshold > 0)
        grad_src, grad_dst = empty(x_src.shape, x_src.dtype), empty(x_dst.shape, x_dst.dtype)
        rows = [storage(tensor) for tensor in (x_src, x_dst, attn, grad)]
        bounds = adj.chunks()
        sums = torch.zeros(len(bounds) - 1, *attn.shape)
        for tile, arguments in tiles_of(x_src):
            facts = torch.empty(adj.num_dst * 3 * tile.heads.count).numpy()
            run_rows(
                _backward_targets, bounds, *arguments, adj.indptr.numpy(), adj.indices.numpy(), *rows, slope, *rule,
                storage(y), storage(top), storage(inverse), bounds, facts, storage(grad_dst), storage(sums),
            )  # fmt: skip
            run_rows(
                _backward_sources, out.chunks(), *arguments,
                out.indptr.numpy(), out.indices.numpy(), positions.numpy(), *rows, slope, *rule,
                Lanes(3 * tile.heads.count), facts, storage(grad_src),
            )  # fmt: skip
        return grad_src, grad_dst, sums.sum(0), None, None, None


@njit(cache=True, nogil=True)
def _forward_rows(  # type: ignore[no-untyped-def]
    low, high, heads, numbers, lanes, width, column, stride, count, first, num_heads,
    indptr, indices, x_src, x_dst, attn, slope, key_low, key_high, threshold, scale, y, top, inverse,
):  # fmt: skip
    """Softmax as the edges come: where the largest score grows, what was summed shrinks."""
    last = indptr[high]
    vector = load(lanes, attn, column, width)
    for row in range(low, high):
        target = load(lanes, x_dst, row * stride + column, width)
        acc, weights = zeros(lanes), zeros(numbers)
        largest = splat(numbers, np.float32(-np.inf))
        for e in range(indptr[row], indptr[row + 1]):
            if e + FAR < last:
                prefetch_far(lanes, x_src, np.int64(indices[e + FAR]) * stride + column)
            if e + NEAR < last:
                prefetch(lanes, x_src, np.int64(indices[e + NEAR]) * stride + column)
            source = load(lanes, x_src, np.int64(indices[e]) * stride + column, width)
            score = sum_heads(heads, vector * leaky(source + target, slope))
            before, largest = largest, maximum(largest, score)
            shrunk, weight = exp(before - largest), exp(score - largest)
            weights = weights * shrunk + weight
            if threshold > 0:
                weight = kept(weight, e * num_heads + first, key_low, key_high, threshold)
            acc = acc * spread(heads, shrunk) + spread(heads, weight) * source
        factor = where_positive(weights, splat(numbers, np.float32(1)) / weights)
        store(lanes, y, row * stride + column, acc * spread(heads, factor * scale), width)
        store(numbers, top, row * num_heads + first, largest, count)
        store(numbers, inverse, row * num_heads + first, factor, count)


@njit(cache=True, nogil=True)
def _backward_targets(  # type: ignore[no-untyped-def]
    low, high, heads, numbers, lanes, width, column, stride, count, first, num_heads,
    indptr, indices, x_src, x_dst, attn, grad, slope, key_low, key_high, threshold, scale,
    y, top, inverse, bounds, facts, grad_dst, sums,
):  # fmt: skip
    """Go over the destinations: dx_dst, the ranges' shares of d attn, and what the sources' pass needs of each row."""
    last = indptr[high]
    vector = load(lanes, attn, column, width)
    whole = zeros(lanes)
    for row in range(low, high):
        at = row * stride + column
        target, gradient = load(lanes, x_dst, at, width), load(lanes, grad, at, width)
        largest = load(numbers, top, row * num_heads + first, count)
        factor = load(numbers, inverse, row * num_heads + first, count)
        dot_y = sum_heads(heads, gradient * load(lanes, y, at, width))
        store(numbers, facts, 3 * row * count, largest, count)
        store(numbers, facts, (3 * row + 1) * count, factor, count)
        store(numbers, facts, (3 * row + 2) * count, dot_y, count)
        acc, share = zeros(lanes), zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            if e + FAR < last:
                prefetch_far(lanes, x_src, np.int64(indices[e + FAR]) * stride + column)
            if e + NEAR < last:
                prefetch(lanes, x_src, np.int64(indices[e + NEAR]) * stride + column)
            source = load(lanes, x_src, np.int64(indices[e]) * stride + column, width)
            joined = source + target
            active = leaky(joined, slope)
            weight = exp(sum_heads(heads, vector * active) - largest) * factor
            dot = sum_heads(heads, gradient * source)
            if threshold > 0:
                dot = scale * kept(dot, e * num_heads + first, key_low, key_high, threshold)
            change = spread(heads, weight * (dot - dot_y))
            acc = acc + leaky_gradient(joined, slope, change)
            share = share + change * active
        store(lanes, grad_dst, at, vector * acc, width)
        whole = whole + share
    if low < high:
        store(lanes, sums, range_number(bounds, low) * stride + column, whole, width)


@njit(cache=True, nogil=True)
def _backward_sources(  # type: ignore[no-untyped-def]
    low, high, heads, numbers, lanes, width, column, stride, count, first, num_heads,
    indptr, indices, edges, x_src, x_dst, attn, grad, slope, key_low, key_high, threshold, scale,
    fact_lanes, facts, grad_src,
):  # fmt: skip
    last = indptr[high]
    vector = load(lanes, attn, column, width)
    for row in range(low, high):
        source = load(lanes, x_src, row * stride + column, width)
        acc, changes = zeros(lanes), zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            if e + FAR < last:
                ahead = np.int64(indices[e + FAR])
                prefetch_far(lanes, grad, ahead * stride + column)
                prefetch_far(lanes, x_dst, ahead * stride + column)
                prefetch_far(fact_lanes, facts, 3 * ahead * count)
            if e + NEAR < last:
                ahead = np.int64(indices[e + NEAR])
                prefetch(lanes, grad, ahead * stride + column)
                prefetch(lanes, x_dst, ahead * stride + column)
                prefetch(fact_lanes, facts, 3 * ahead * count)
            v = np.int64(indices[e])
            gradient = load(lanes, grad, v * stride + column, width)
            joined = source + load(lanes, x_dst, v * stride + column, width)
            score = sum_heads(heads, vector * leaky(joined, slope))
            weight = exp(score - load(numbers, facts, 3 * v * count, count))
            weight = weight * load(numbers, facts, (3 * v + 1) * count, count)
            dot = sum_heads(heads, gradient * source)
            passed = weight
            if threshold > 0:
                dot = scale * kept(dot, edges[e] * num_heads + first, key_low, key_high, threshold)
                passed = scale * kept(weight, edges[e] * num_heads + first, key_low, key_high, threshold)
            acc = acc + spread(heads, passed) * gradient
            change = spread(heads, weight * (dot - load(numbers, facts, (3 * v + 2) * count, count)))
            changes = changes + leaky_gradient(joined, slope, change)
        store(lanes, grad_src, row * stride + column, acc + vector * changes, width)
