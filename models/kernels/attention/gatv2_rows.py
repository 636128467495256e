"""GATv2's attention, and its scores alone, on the CPU: each source row is read once forward."""

# ruff: noqa: D102
from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.attention.edge_dropout import EdgeDropout, kept
from models.kernels.attention.heads import HeadTile, head_tiles, leaky, leaky_gradient, spread, sum_heads
from models.kernels.memory import empty
from models.kernels.simd.exponentials import exp
from models.kernels.simd.vector import Lanes, ask_ahead, load, maximum, splat, storage, store, where_positive, zeros
from models.kernels.sparse.adjacency import Adjacency, out_edges, range_number
from models.kernels.threads import run_rows

_WIDEST = 128
"""Columns of a tile: the backward keeps five rows at hand."""


def _tiles(x: Tensor) -> list[tuple[HeadTile, tuple[Any, ...]]]:
    """Return the tiles of rows (n, H, D), and what kernels are told of each."""
    heads, dim = x.shape[1:]
    return [(tile, tile.place(heads, dim)) for tile in head_tiles(heads, dim, _WIDEST, splits_heads=False)]


def _rows(x_src: Tensor, x_dst: Tensor, attn: Tensor, slope: float) -> tuple[Any, ...]:
    return storage(x_src), storage(x_dst), storage(attn), np.float32(slope)


class GatV2Attention(torch.autograd.Function):
    """`attention.gatv2_attention` on the CPU."""

    @staticmethod
    def forward(
        ctx: Any, x_src: Tensor, x_dst: Tensor, attn: Tensor, adj: Adjacency, slope: float, rule: EdgeDropout
    ) -> Tensor:
        x_src, x_dst, attn = x_src.contiguous(), x_dst.contiguous(), attn.contiguous()
        y = empty(x_dst.shape, x_dst.dtype)
        top, inverse = (torch.empty(x_dst.shape[:2], dtype=torch.float32) for _ in range(2))
        edges, rows = (adj.indptr.numpy(), adj.indices.numpy()), _rows(x_src, x_dst, attn, slope)
        for _, tile in _tiles(x_src):
            run_rows(
                _forward_rows, adj.chunks(), tile, edges, rows, rule.arguments(), tuple(map(storage, (y, top, inverse)))
            )
        ctx.save_for_backward(x_src, x_dst, attn, y, top, inverse)
        ctx.adj, ctx.slope, ctx.rule = adj, slope, rule
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x_src, x_dst, attn, y, top, inverse = ctx.saved_tensors
        adj, rule, rows = ctx.adj, ctx.rule.arguments(), _rows(x_src, x_dst, attn, ctx.slope)
        grad, (out, positions) = grad.contiguous(), out_edges(adj, ctx.rule.threshold > 0)
        grad_src, grad_dst = empty(x_src.shape, x_src.dtype), empty(x_dst.shape, x_dst.dtype)
        bounds = adj.chunks()
        sums = torch.zeros(len(bounds) - 1, *attn.shape)
        edges = adj.indptr.numpy(), adj.indices.numpy()
        edges_out = out.indptr.numpy(), out.indices.numpy(), positions.numpy()
        results = bounds, storage(grad_dst), storage(sums)
        for tile, place in _tiles(x_src):
            facts = torch.empty(adj.num_dst * 3 * tile.heads.count).numpy()
            attended = storage(grad), *rule, storage(y), storage(top), storage(inverse), facts
            run_rows(_backward_targets, bounds, place, edges, rows, None, attended, results)
            attended = storage(grad), *rule, Lanes(3 * tile.heads.count), facts
            run_rows(_backward_sources, out.chunks(), place, edges_out, rows, None, attended, storage(grad_src))
        return grad_src, grad_dst, sums.sum(0), None, None, None


class GatV2Scores(torch.autograd.Function):
    """`attention.gatv2_scores` on the CPU."""

    @staticmethod
    def forward(ctx: Any, x_src: Tensor, x_dst: Tensor, attn: Tensor, adj: Adjacency, slope: float) -> Tensor:
        x_src, x_dst, attn = x_src.contiguous(), x_dst.contiguous(), attn.contiguous()
        scores = torch.empty(adj.num_edges, attn.shape[0])
        edges = adj.indptr.numpy(), adj.indices.numpy()
        for _, tile in _tiles(x_src):
            rows = _rows(x_src, x_dst, attn, slope)
            run_rows(_score_rows, adj.chunks(), tile, edges, rows, storage(scores))
        ctx.save_for_backward(x_src, x_dst, attn)
        ctx.adj, ctx.slope = adj, slope
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (x_src, x_dst, attn), adj = ctx.saved_tensors, ctx.adj
        (out, positions), bounds = out_edges(adj, needs_positions=True), adj.chunks()
        grad_src, grad_dst = empty(x_src.shape, x_src.dtype), empty(x_dst.shape, x_dst.dtype)
        sums = torch.zeros(len(bounds) - 1, *attn.shape)
        rows, grad_scores = _rows(x_src, x_dst, attn, ctx.slope), storage(grad.contiguous())
        edges, results = (adj.indptr.numpy(), adj.indices.numpy()), (bounds, storage(grad_dst), storage(sums))
        edges_out = out.indptr.numpy(), out.indices.numpy(), positions.numpy()
        for _, tile in _tiles(x_src):
            run_rows(_backward_targets, bounds, tile, edges, rows, grad_scores, None, results)
            run_rows(_backward_sources, out.chunks(), tile, edges_out, rows, grad_scores, None, storage(grad_src))
        return grad_src, grad_dst, sums.sum(0), None, None


@njit(cache=True, nogil=True)
def _forward_rows(low, high, tile, edges, rows, rule, results):  # type: ignore[no-untyped-def]
    """Softmax as the edges come: where the largest score grows, what was summed shrinks."""
    heads, numbers, lanes, width, column, stride, count, first, num_heads = tile
    (indptr, indices), (x_src, x_dst, attn, slope), (y, top, inverse) = edges, rows, results
    key_low, key_high, threshold, scale = rule
    last = indptr[high]
    vector = load(lanes, attn, column, width)
    for row in range(low, high):
        target = load(lanes, x_dst, row * stride + column, width)
        acc, weights = zeros(lanes), zeros(numbers)
        largest = splat(numbers, np.float32(-np.inf))
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, x_src, indices, e, last, stride, column)
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
def _score_rows(low, high, tile, edges, rows, scores):  # type: ignore[no-untyped-def]
    heads, numbers, lanes, width, column, stride, count, first, num_heads = tile
    (indptr, indices), (x_src, x_dst, attn, slope) = edges, rows
    last = indptr[high]
    vector = load(lanes, attn, column, width)
    for row in range(low, high):
        target = load(lanes, x_dst, row * stride + column, width)
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, x_src, indices, e, last, stride, column)
            source = load(lanes, x_src, np.int64(indices[e]) * stride + column, width)
            score = sum_heads(heads, vector * leaky(source + target, slope))
            store(numbers, scores, e * num_heads + first, score, count)


@njit(cache=True, nogil=True)
def _backward_targets(low, high, tile, edges, rows, grad_scores, attended, results):  # type: ignore[no-untyped-def]
    """Go over the destinations: dx_dst, the ranges' shares of d attn, and what the sources' pass needs of each row.

    The gradients of scores are given, or are the attention's, whose own `attended` holds; the other is None.
    """
    heads, numbers, lanes, width, column, stride, count, first, num_heads = tile
    (indptr, indices), (x_src, x_dst, attn, slope), (bounds, grad_dst, sums) = edges, rows, results
    if attended is not None:
        grad, key_low, key_high, threshold, scale, y, top, inverse, facts = attended
    last = indptr[high]
    vector = load(lanes, attn, column, width)
    whole = zeros(lanes)
    for row in range(low, high):
        at = row * stride + column
        target = load(lanes, x_dst, at, width)
        if attended is not None:
            gradient = load(lanes, grad, at, width)
            largest = load(numbers, top, row * num_heads + first, count)
            factor = load(numbers, inverse, row * num_heads + first, count)
            dot_y = sum_heads(heads, gradient * load(lanes, y, at, width))
            store(numbers, facts, 3 * row * count, largest, count)
            store(numbers, facts, (3 * row + 1) * count, factor, count)
            store(numbers, facts, (3 * row + 2) * count, dot_y, count)
        acc, share = zeros(lanes), zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, x_src, indices, e, last, stride, column)
            source = load(lanes, x_src, np.int64(indices[e]) * stride + column, width)
            joined = source + target
            active = leaky(joined, slope)
            if grad_scores is not None:
                change = spread(heads, load(numbers, grad_scores, e * num_heads + first, count))
            if attended is not None:
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
def _backward_sources(low, high, tile, edges_out, rows, grad_scores, attended, grad_src):  # type: ignore[no-untyped-def]
    heads, numbers, lanes, width, column, stride, count, first, num_heads = tile
    (indptr, indices, edges), (x_src, x_dst, attn, slope) = edges_out, rows
    if attended is not None:
        grad, key_low, key_high, threshold, scale, fact_lanes, facts = attended
    last = indptr[high]
    vector = load(lanes, attn, column, width)
    for row in range(low, high):
        source = load(lanes, x_src, row * stride + column, width)
        acc, changes = zeros(lanes), zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, x_dst, indices, e, last, stride, column)
            if attended is not None:
                ask_ahead(lanes, grad, indices, e, last, stride, column)
                ask_ahead(fact_lanes, facts, indices, e, last, 3 * count, 0)
            v = np.int64(indices[e])
            joined = source + load(lanes, x_dst, v * stride + column, width)
            if grad_scores is not None:
                change = spread(heads, load(numbers, grad_scores, np.int64(edges[e]) * num_heads + first, count))
            if attended is not None:
                gradient = load(lanes, grad, v * stride + column, width)
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
