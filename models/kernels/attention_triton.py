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

from models.kernels.adjacency import Adjacency
from models.kernels.edge_dropout import EdgeDropout
from models.kernels.ranges import out_edges

EDGES = 16
"""Edges of a block: with 64 columns, 1024 numbers in a warp or two."""


def sizes(heads: int, dim: int, rule: EdgeDropout) -> dict[str, Any]:
    """Return what kernels are compiled for: the shape, padded to a power of two, and whether weights are dropped."""
    width = max(16, triton.next_power_of_2(dim))
    warps = 1 if width <= 32 else 2 if width <= 128 else 4
    return {"H": heads, "D": dim, "EDGES": EDGES, "WIDTH": width, "DROPS": rule.threshold > 0, "num_warps": warps}


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


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _forward(  # type: ignore[no-untyped-def]
    indptr, indices, x, score_src, score_dst, y, log_sums, slope, low, high, threshold, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    columns = tl.arange(0, WIDTH)
    target = tl.load(score_dst + row * H + head)
    acc = tl.zeros([WIDTH], tl.float32)
    weights, largest = 0.0, -float("inf")
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
        score = tl.load(score_src + u, mask=e < end, other=0.0) + target
        score = tl.where(e < end, tl.where(score > 0, score, score * slope), -float("inf"))
        top = tl.maximum(largest, tl.max(score, 0))
        shrunk, weight = tl.exp(largest - top), tl.exp(score - top)
        weights = weights * shrunk + tl.sum(weight, 0)
        if DROPS:
            weight = tl.where(kept(e * H + head, low, high, threshold), weight * scale, 0.0)
        there = (e < end)[:, None] & (columns < D)[None, :]
        rows = tl.load(x + u[:, None] * D + columns[None, :], mask=there, other=0.0).to(tl.float32)
        acc = acc * shrunk + tl.sum(weight[:, None] * rows, 0)
        largest = top
    acc = tl.where(weights > 0, acc / weights, acc)
    tl.store(y + (row * H + head) * D + columns, acc.to(y.dtype.element_ty), mask=columns < D)
    tl.store(log_sums + row * H + head, largest + tl.log(weights))


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _backward_targets(  # type: ignore[no-untyped-def]
    indptr, indices, x, score_src, score_dst, grad, y, log_sums, dots, grad_dst, slope, low, high, threshold, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Sum the score gradients of a destination, a (<dy, x> - <dy, y>) through LeakyReLU; leave <dy, y> in `dots`."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    columns = tl.arange(0, WIDTH)
    at = row * H + head
    gradient = tl.load(grad + at * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    result = tl.load(y + at * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    dot_y = tl.sum(gradient * result, 0)
    tl.store(dots + at, dot_y)
    target, log_sum = tl.load(score_dst + at), tl.load(log_sums + at)
    total = 0.0
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
        score = tl.load(score_src + u, mask=e < end, other=0.0) + target
        weight = tl.where(e < end, tl.exp(tl.where(score > 0, score, score * slope) - log_sum), 0.0)
        there = (e < end)[:, None] & (columns < D)[None, :]
        rows = tl.load(x + u[:, None] * D + columns[None, :], mask=there, other=0.0).to(tl.float32)
        dot = tl.sum(rows * gradient[None, :], 1)
        if DROPS:
            dot = tl.where(kept(e * H + head, low, high, threshold), dot * scale, 0.0)
        total += tl.sum(weight * (dot - dot_y) * tl.where(score > 0, 1.0, slope), 0)
    tl.store(grad_dst + at, total)


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _backward_sources(  # type: ignore[no-untyped-def]
    indptr, indices, edges, x, score_src, score_dst, grad, y, log_sums, dots, grad_x, grad_src,
    slope, low, high, threshold, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    columns = tl.arange(0, WIDTH)
    at = row * H + head
    value = tl.load(x + at * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    source = tl.load(score_src + at)
    acc = tl.zeros([WIDTH], tl.float32)
    total = 0.0
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        v = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
        score = tl.load(score_dst + v, mask=e < end, other=0.0) + source
        log_sum = tl.load(log_sums + v, mask=e < end, other=0.0)
        weight = tl.where(e < end, tl.exp(tl.where(score > 0, score, score * slope) - log_sum), 0.0)
        there = (e < end)[:, None] & (columns < D)[None, :]
        rows = tl.load(grad + v[:, None] * D + columns[None, :], mask=there, other=0.0).to(tl.float32)
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
