"""`gat_attention` on GPUs: a program for each node and head goes over its edges in blocks. Not yet run on a GPU.

No atomics: gradients of sources are summed over their out-edges, those of destinations over their in-edges.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.attention.edge_dropout import EdgeDropout
from models.kernels.attention.rows_triton import fold, kept, load_row, load_rows, sizes, store_sum
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.ranges import out_edges


def gat_attention_triton(
    adj: Adjacency, x: Tensor, score_src: Tensor, score_dst: Tensor, slope: float, rule: EdgeDropout
) -> Tensor:
    """Do `attention.gat_attention`; scores are float32."""
    return _Attention.apply(x, score_src, score_dst, adj, slope, rule)  # type: ignore[no-untyped-call]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, score_src: Tensor, score_dst: Tensor, adj: Adjacency, slope: float, rule: EdgeDropout
    ) -> Tensor:
        x, score_src, score_dst = x.contiguous(), score_src.contiguous(), score_dst.contiguous()
        y, log_sums = x.new_empty(adj.num_dst, *x.shape[1:]), torch.empty_like(score_dst)
        chances = (rule.low, rule.high, rule.threshold, rule.scale)
        if adj.num_dst:
            _forward[(adj.num_dst, x.shape[1])](
                adj.indptr, adj.indices, x, score_src, score_dst, y, log_sums, slope, *chances,
                **sizes(x.shape[1], x.shape[2], rule),
            )  # fmt: skip
        ctx.save_for_backward(x, score_src, score_dst, y, log_sums)
        ctx.adj, ctx.slope, ctx.rule = adj, slope, rule
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, score_src, score_dst, y, log_sums = ctx.saved_tensors
        adj, rule, grad = ctx.adj, ctx.rule, grad.contiguous()
        (out, positions), heads = out_edges(adj, rule.threshold > 0), x.shape[1]
        known = (x, score_src, score_dst, grad, y, log_sums)
        rest = (ctx.slope, rule.low, rule.high, rule.threshold, rule.scale)
        shape = sizes(heads, x.shape[2], rule)
        dots, grad_dst = torch.empty_like(score_dst), torch.empty_like(score_dst)
        grad_x, grad_src = torch.empty_like(x), torch.empty_like(score_src)
        if adj.num_dst:
            _backward_targets[(adj.num_dst, heads)](
                adj.indptr, adj.indices, *known, dots, grad_dst, *rest, **shape
            )  # fmt: skip
        if adj.num_src:
            _backward_sources[(adj.num_src, heads)](
                out.indptr, out.indices, positions, *known, dots, grad_x, grad_src, *rest, **shape
            )
        return grad_x, grad_src, grad_dst, None, None, None


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _forward(  # type: ignore[no-untyped-def]
    indptr, indices, x, score_src, score_dst, y, log_sums, slope,
    low: tl.int64, high: tl.int64, threshold: tl.int64, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    target = tl.load(score_dst + row * H + head)
    acc = tl.zeros([WIDTH], tl.float32)
    weights, largest = 0.0, -float("inf")
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
        score = tl.load(score_src + u, mask=e < end, other=0.0) + target
        score = tl.where(e < end, tl.where(score > 0, score, score * slope), -float("inf"))
        rows = load_rows(x, u, e < end, D, WIDTH)
        acc, weights, largest = fold(
            acc, weights, largest, score, rows, e * H + head, low, high, threshold, scale, DROPS
        )
    store_sum(y, log_sums, row * H + head, acc, weights, largest, D, WIDTH)


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _backward_targets(  # type: ignore[no-untyped-def]
    indptr, indices, x, score_src, score_dst, grad, y, log_sums, dots, grad_dst, slope,
    low: tl.int64, high: tl.int64, threshold: tl.int64, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Sum the score gradients of a destination, a (<dy, x> - <dy, y>) through LeakyReLU; leave <dy, y> in `dots`."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    at = row * H + head
    gradient = load_row(grad, at, D, WIDTH)
    dot_y = tl.sum(gradient * load_row(y, at, D, WIDTH), 0)
    tl.store(dots + at, dot_y)
    target, log_sum = tl.load(score_dst + at), tl.load(log_sums + at)
    total = 0.0
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
        score = tl.load(score_src + u, mask=e < end, other=0.0) + target
        weight = tl.where(e < end, tl.exp(tl.where(score > 0, score, score * slope) - log_sum), 0.0)
        dot = tl.sum(load_rows(x, u, e < end, D, WIDTH) * gradient[None, :], 1)
        if DROPS:
            dot = tl.where(kept(e * H + head, low, high, threshold), dot * scale, 0.0)
        total += tl.sum(weight * (dot - dot_y) * tl.where(score > 0, 1.0, slope), 0)
    tl.store(grad_dst + at, total)


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _backward_sources(  # type: ignore[no-untyped-def]
    indptr, indices, edges, x, score_src, score_dst, grad, y, log_sums, dots, grad_x, grad_src,
    slope,
    low: tl.int64, high: tl.int64, threshold: tl.int64, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    columns = tl.arange(0, WIDTH)
    at = row * H + head
    value = load_row(x, at, D, WIDTH)
    source = tl.load(score_src + at)
    acc = tl.zeros([WIDTH], tl.float32)
    total = 0.0
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        v = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
        score = tl.load(score_dst + v, mask=e < end, other=0.0) + source
        log_sum = tl.load(log_sums + v, mask=e < end, other=0.0)
        weight = tl.where(e < end, tl.exp(tl.where(score > 0, score, score * slope) - log_sum), 0.0)
        rows = load_rows(grad, v, e < end, D, WIDTH)
        dot = tl.sum(rows * value[None, :], 1)
        passed = weight
        if DROPS:
            position = tl.load(edges + e, mask=e < end, other=0).to(tl.int64)
            keeps = kept(position * H + head, low, high, threshold)
            dot, passed = tl.where(keeps, dot * scale, 0.0), tl.where(keeps, weight * scale, 0.0)
        acc += tl.sum(passed[:, None] * rows, 0)
        change = weight * (dot - tl.load(dots + v, mask=e < end, other=0.0))
        total += tl.sum(change * tl.where(score > 0, 1.0, slope), 0)
    tl.store(grad_x + at * D + columns, acc.to(grad_x.dtype.element_ty), mask=columns < D)
    tl.store(grad_src + at, total)
