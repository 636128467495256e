"""GATv2's scores of edges, for attention that knows more of an edge than its two ends; no row of an edge is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F  # noqa: N812

from models.kernels.attention.gatv2 import check_ends, has_fused_heads, tiles_of
from models.kernels.attention.heads import leaky, leaky_gradient, spread, sum_heads
from models.kernels.backends import choose, widen
from models.kernels.memory import empty
from models.kernels.simd.vector import FAR, NEAR, load, prefetch, prefetch_far, storage, store, zeros
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.ranges import out_edges, range_number
from models.kernels.threads import run_rows


def gatv2_scores(adj: Adjacency, x_src: Tensor, x_dst: Tensor, attn: Tensor, negative_slope: float = 0.2) -> Tensor:
    """s_eh = <attn_h, LeakyReLU(x_src_uh + x_dst_vh)> for each edge e = (u, v): the scores of `gatv2_attention`.

    Args:
        adj: the edges.
        x_src: float32 or bfloat16 (num_src, H, D); differentiable.
        x_dst: (num_dst, H, D) in the same dtype; differentiable.
        attn: (H, D); differentiable.
        negative_slope: LeakyReLU's.

    Returns:
        float32 (E, H), in the order of the edges. On a CPU the last bits of attn's gradient depend on the number of
        threads; on a GPU, and for heads of more than 512 columns, E x H x D numbers are kept meanwhile.

    Raises:
        ValueError: shapes or dtypes that do not fit together.
    """
    check_ends(adj, x_src, x_dst, attn)
    if choose(x_src) != "numba" or not has_fused_heads(attn):
        return reference_gatv2_scores(adj, widen(x_src), widen(x_dst), widen(attn), negative_slope)
    return _Scores.apply(x_src, x_dst, attn.float(), adj, negative_slope)  # type: ignore[no-untyped-call]


def reference_gatv2_scores(
    adj: Adjacency, x_src: Tensor, x_dst: Tensor, attn: Tensor, negative_slope: float = 0.2
) -> Tensor:
    """Do `gatv2_scores` by gathering both ends' rows."""
    joined = x_src[adj.indices.long()] + x_dst[adj.targets()]
    return (attn * F.leaky_relu(joined, negative_slope)).sum(2)


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x_src: Tensor, x_dst: Tensor, attn: Tensor, adj: Adjacency, slope: float) -> Tensor:
        x_src, x_dst, attn = x_src.contiguous(), x_dst.contiguous(), attn.contiguous()
        scores = torch.empty(adj.num_edges, attn.shape[0])
        edges = adj.indptr.numpy(), adj.indices.numpy()
        for _, tile in tiles_of(x_src):
            rows = storage(x_src), storage(x_dst), storage(attn), np.float32(slope), storage(scores)
            run_rows(_score_rows, adj.chunks(), *tile, *edges, *rows)
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
        rows = (storage(x_src), storage(x_dst), storage(attn), np.float32(ctx.slope), storage(grad.contiguous()))
        for _, tile in tiles_of(x_src):
            edges = adj.indptr.numpy(), adj.indices.numpy()
            run_rows(_backward_targets, bounds, *tile, *edges, *rows, bounds, storage(grad_dst), storage(sums))
            edges = out.indptr.numpy(), out.indices.numpy()
            run_rows(_backward_sources, out.chunks(), *tile, *edges, positions.numpy(), *rows, storage(grad_src))
        return grad_src, grad_dst, sums.sum(0), None, None


@njit(cache=True, nogil=True)
def _score_rows(  # type: ignore[no-untyped-def]
    low, high, heads, numbers, lanes, width, column, stride, count, first, num_heads,
    indptr, indices, x_src, x_dst, attn, slope, scores,
):  # fmt: skip
    last = indptr[high]
    vector = load(lanes, attn, column, width)
    for row in range(low, high):
        target = load(lanes, x_dst, row * stride + column, width)
        for e in range(indptr[row], indptr[row + 1]):
            if e + FAR < last:
                prefetch_far(lanes, x_src, np.int64(indices[e + FAR]) * stride + column)
            if e + NEAR < last:
                prefetch(lanes, x_src, np.int64(indices[e + NEAR]) * stride + column)
            source = load(lanes, x_src, np.int64(indices[e]) * stride + column, width)
            score = sum_heads(heads, vector * leaky(source + target, slope))
            store(numbers, scores, e * num_heads + first, score, count)


@njit(cache=True, nogil=True)
def _backward_targets(  # type: ignore[no-untyped-def]
    low, high, heads, numbers, lanes, width, column, stride, count, first, num_heads,
    indptr, indices, x_src, x_dst, attn, slope, grad, bounds, grad_dst, sums,
):  # fmt: skip
    """Go over the destinations: dx_dst, and the ranges' shares of d attn."""
    last = indptr[high]
    vector, whole = load(lanes, attn, column, width), zeros(lanes)
    for row in range(low, high):
        at = row * stride + column
        target, acc = load(lanes, x_dst, at, width), zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            if e + FAR < last:
                prefetch_far(lanes, x_src, np.int64(indices[e + FAR]) * stride + column)
            if e + NEAR < last:
                prefetch(lanes, x_src, np.int64(indices[e + NEAR]) * stride + column)
            joined = load(lanes, x_src, np.int64(indices[e]) * stride + column, width) + target
            change = spread(heads, load(numbers, grad, e * num_heads + first, count))
            acc = acc + leaky_gradient(joined, slope, change)
            whole = whole + change * leaky(joined, slope)
        store(lanes, grad_dst, at, vector * acc, width)
    if low < high:
        store(lanes, sums, range_number(bounds, low) * stride + column, whole, width)


@njit(cache=True, nogil=True)
def _backward_sources(  # type: ignore[no-untyped-def]
    low, high, heads, numbers, lanes, width, column, stride, count, first, num_heads,
    indptr, indices, edges, x_src, x_dst, attn, slope, grad, grad_src,
):  # fmt: skip
    last = indptr[high]
    vector = load(lanes, attn, column, width)
    for row in range(low, high):
        source, acc = load(lanes, x_src, row * stride + column, width), zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            if e + FAR < last:
                prefetch_far(lanes, x_dst, np.int64(indices[e + FAR]) * stride + column)
            if e + NEAR < last:
                prefetch(lanes, x_dst, np.int64(indices[e + NEAR]) * stride + column)
            joined = source + load(lanes, x_dst, np.int64(indices[e]) * stride + column, width)
            change = spread(heads, load(numbers, grad, np.int64(edges[e]) * num_heads + first, count))
            acc = acc + leaky_gradient(joined, slope, change)
        store(lanes, grad_src, row * stride + column, vector * acc, width)
