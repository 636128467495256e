"""GAT's attention on the CPU: scores, softmax and weighted sum fused."""

# ruff: noqa: D102
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.attention.edge_dropout import EdgeDropout, kept
from models.kernels.attention.heads import head_tiles, leaky, leaky_gradient, spread, sum_heads
from models.kernels.memory import empty
from models.kernels.simd.exponentials import exp
from models.kernels.simd.vector import (
    FAR,
    NEAR,
    Lanes,
    ask_ahead,
    load,
    maximum,
    prefetch,
    prefetch_far,
    prefetch_item,
    splat,
    storage,
    store,
    where_positive,
    zeros,
)
from models.kernels.sparse.adjacency import Adjacency, few_ranges, out_edges, range_number
from models.kernels.threads import run_rows


class GatAttention(torch.autograd.Function):
    """`attention.gat_attention` on the CPU."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, score_src: Tensor, score_dst: Tensor, adj: Adjacency, slope: float, rule: EdgeDropout
    ) -> Tensor:
        x, score_src, score_dst = x.contiguous(), score_src.contiguous(), score_dst.contiguous()
        y = empty((adj.num_dst, *x.shape[1:]), x.dtype)
        top, inverse = torch.empty_like(score_dst), torch.empty_like(score_dst)
        edges, results = (adj.indptr.numpy(), adj.indices.numpy()), (storage(y), storage(top), storage(inverse))
        rows = storage(x), storage(score_src), storage(score_dst)
        for tile in head_tiles(*x.shape[1:]):
            place, how = tile.place(*x.shape[1:]), (np.float32(slope), *rule.arguments())
            run_rows(_forward_rows, adj.chunks(), place, edges, rows, how, results)
        ctx.save_for_backward(x, score_src, score_dst, y, top, inverse)
        ctx.adj, ctx.slope, ctx.rule = adj, slope, rule
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, score_src, score_dst, y, top, inverse = ctx.saved_tensors
        adj, slope, rule = ctx.adj, ctx.slope, ctx.rule
        grad, (out, positions) = grad.contiguous(), out_edges(adj, rule.threshold > 0)
        bounds = few_ranges(out)
        grad_x, grad_src, grad_dst = empty(x.shape, x.dtype), torch.zeros_like(score_src), torch.zeros_like(score_dst)
        edges = out.indptr.numpy(), out.indices.numpy(), positions.numpy()
        rows = storage(x), storage(grad), storage(score_src)
        ends = storage(grad), storage(y), storage(score_dst), storage(top), storage(inverse)
        for tile in head_tiles(*x.shape[1:]):
            count, place = tile.heads.count, tile.place(*x.shape[1:])
            facts = torch.empty(adj.num_dst * 4 * count).numpy()  # torch's arrays begin at cache lines
            run_rows(_collect_rows, adj.chunks(), place, ends, facts)
            sums = torch.zeros(len(bounds) - 1, adj.num_dst, count)
            results = storage(grad_x), storage(grad_src), storage(sums)
            how = np.float32(slope), *rule.arguments()
            run_rows(_backward_rows, bounds, place, edges, rows, how, (Lanes(4 * count), facts), bounds, results)
            grad_dst[:, tile.first : tile.first + count] += sums.sum(0)
        return grad_x, grad_src, grad_dst, None, None, None


@njit(cache=True, nogil=True)
def _forward_rows(low, high, tile, edges, rows, how, results):  # type: ignore[no-untyped-def]
    heads, numbers, lanes, width, column, stride, count, first, num_heads = tile
    (indptr, indices), (x, score_src, score_dst), (y, top, inverse) = edges, rows, results
    slope, key_low, key_high, threshold, scale = how
    last = indptr[high]
    for row in range(low, high):
        begin, end = indptr[row], indptr[row + 1]
        target = load(numbers, score_dst, row * num_heads + first, count)
        largest = splat(numbers, np.float32(-np.inf))
        for e in range(begin, end):
            if e + FAR < last:
                ahead = np.int64(indices[e + FAR])
                prefetch_item(score_src, ahead * num_heads + first)
                prefetch_far(lanes, x, ahead * stride + column)
            source = load(numbers, score_src, np.int64(indices[e]) * num_heads + first, count)
            largest = maximum(largest, leaky(source + target, slope))
        acc, weights = zeros(lanes), zeros(numbers)
        for e in range(begin, end):
            if e + NEAR < last:
                prefetch(lanes, x, np.int64(indices[e + NEAR]) * stride + column)
            u = np.int64(indices[e])
            source = load(numbers, score_src, u * num_heads + first, count)
            weight = exp(leaky(source + target, slope) - largest)
            weights = weights + weight
            if threshold > 0:
                weight = kept(weight, e * num_heads + first, key_low, key_high, threshold)
            acc = acc + spread(heads, weight) * load(lanes, x, u * stride + column, width)
        factor = where_positive(weights, splat(numbers, np.float32(1)) / weights)
        store(lanes, y, row * stride + column, acc * spread(heads, factor * scale), width)
        store(numbers, top, row * num_heads + first, largest, count)
        store(numbers, inverse, row * num_heads + first, factor, count)


@njit(cache=True, nogil=True)
def _collect_rows(low, high, tile, ends, facts):  # type: ignore[no-untyped-def]
    """Write side by side, for each destination, what its in-edges need: score, max, 1 / sum and <dy, y>."""
    heads, numbers, lanes, width, column, stride, count, first, num_heads = tile
    grad, y, score_dst, top, inverse = ends
    for row in range(low, high):
        at = row * stride + column
        dot = sum_heads(heads, load(lanes, grad, at, width) * load(lanes, y, at, width))
        at, into = row * num_heads + first, 4 * row * count
        store(numbers, facts, into, load(numbers, score_dst, at, count), count)
        store(numbers, facts, into + count, load(numbers, top, at, count), count)
        store(numbers, facts, into + 2 * count, load(numbers, inverse, at, count), count)
        store(numbers, facts, into + 3 * count, dot, count)


@njit(cache=True, nogil=True)
def _backward_rows(low, high, tile, out_edges, rows, how, collected, bounds, results):  # type: ignore[no-untyped-def]
    """Go over the sources: dx_u = sum_v a dy_v; ds = a (<dy_v, x_u> - <dy_v, y_v>) before the LeakyReLU's slope."""
    heads, numbers, lanes, width, column, stride, count, first, num_heads = tile
    (indptr, indices, edges), (x, grad, score_src), (grad_x, grad_src, sums) = out_edges, rows, results
    slope, key_low, key_high, threshold, scale = how
    fact_lanes, facts = collected
    base = range_number(bounds, low) * (len(sums) // (len(bounds) - 1)) if low < high else 0
    last = indptr[high]
    for row in range(low, high):
        source = load(numbers, score_src, row * num_heads + first, count)
        value = load(lanes, x, row * stride + column, width)
        acc, slopes = zeros(lanes), zeros(numbers)
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, grad, indices, e, last, stride, column)
            ask_ahead(fact_lanes, facts, indices, e, last, 4 * count, 0)
            if e + NEAR < last:
                prefetch_item(sums, base + np.int64(indices[e + NEAR]) * count)
            v = np.int64(indices[e])
            score = source + load(numbers, facts, 4 * v * count, count)
            largest = load(numbers, facts, (4 * v + 1) * count, count)
            weight = exp(leaky(score, slope) - largest) * load(numbers, facts, (4 * v + 2) * count, count)
            gradient = load(lanes, grad, v * stride + column, width)
            dot = sum_heads(heads, gradient * value)
            passed = weight
            if threshold > 0:
                dot = scale * kept(dot, edges[e] * num_heads + first, key_low, key_high, threshold)
                passed = scale * kept(weight, edges[e] * num_heads + first, key_low, key_high, threshold)
            acc = acc + spread(heads, passed) * gradient
            change = weight * (dot - load(numbers, facts, (4 * v + 3) * count, count))
            change = leaky_gradient(score, slope, change)
            slopes = slopes + change
            at = base + v * count
            store(numbers, sums, at, load(numbers, sums, at, count) + change, count)
        store(lanes, grad_x, row * stride + column, acc, width)
        at = row * num_heads + first
        store(numbers, grad_src, at, load(numbers, grad_src, at, count) + slopes, count)
