"""`gatv2_attention` on GPUs: a program for each node and head goes over its edges in blocks. Not yet run on a GPU.

No atomics: a program that sums over destinations has a row of its own for the gradient of `attn`.
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

_PROGRAMS = 2048
"""Programs a head at most that go over the destinations in the backward: each writes a row of H x D."""


def gatv2_attention_triton(
    adj: Adjacency, x_src: Tensor, x_dst: Tensor, attn: Tensor, slope: float, rule: EdgeDropout
) -> Tensor:
    """Do `gatv2.gatv2_attention`; attn is float32."""
    return _AttentionV2.apply(x_src, x_dst, attn, adj, slope, rule)  # type: ignore[no-untyped-call]


class _AttentionV2(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x_src: Tensor, x_dst: Tensor, attn: Tensor, adj: Adjacency, slope: float, rule: EdgeDropout
    ) -> Tensor:
        x_src, x_dst, attn = x_src.contiguous(), x_dst.contiguous(), attn.contiguous()
        y, log_sums = torch.empty_like(x_dst), attn.new_empty(x_dst.shape[:2])
        chances = (rule.low, rule.high, rule.threshold, rule.scale)
        if adj.num_dst:
            _forward[(adj.num_dst, x_src.shape[1])](
                adj.indptr, adj.indices, x_src, x_dst, attn, y, log_sums, slope, *chances,
                **sizes(x_src.shape[1], x_src.shape[2], rule),
            )  # fmt: skip
        ctx.save_for_backward(x_src, x_dst, attn, y, log_sums)
        ctx.adj, ctx.slope, ctx.rule = adj, slope, rule
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x_src, x_dst, attn, y, log_sums = ctx.saved_tensors
        adj, rule, grad = ctx.adj, ctx.rule, grad.contiguous()
        (out, positions), heads = out_edges(adj, rule.threshold > 0), x_src.shape[1]
        known = (x_src, x_dst, attn, grad, y, log_sums)
        rest = (ctx.slope, rule.low, rule.high, rule.threshold, rule.scale)
        shape = sizes(heads, x_src.shape[2], rule)
        programs = min(adj.num_dst, _PROGRAMS)
        dots, shares = torch.empty_like(log_sums), attn.new_zeros(programs, *attn.shape)
        grad_src, grad_dst = torch.empty_like(x_src), torch.empty_like(x_dst)
        if programs:
            _backward_targets[(programs, heads)](
                adj.num_dst, adj.indptr, adj.indices, *known, dots, grad_dst, shares, *rest, **shape
            )
        if adj.num_src:
            _backward_sources[(adj.num_src, heads)](
                out.indptr, out.indices, positions, *known, dots, grad_src, *rest, **shape
            )
        return grad_src, grad_dst, shares.sum(0), None, None, None


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _forward(  # type: ignore[no-untyped-def]
    indptr, indices, x_src, x_dst, attn, y, log_sums, slope,
    low: tl.int64, high: tl.int64, threshold: tl.int64, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    vector, target = load_row(attn, head, D, WIDTH), load_row(x_dst, row * H + head, D, WIDTH)
    acc = tl.zeros([WIDTH], tl.float32)
    weights, largest = 0.0, -float("inf")
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
        rows = load_rows(x_src, u, e < end, D, WIDTH)
        joined = rows + target[None, :]
        score = tl.sum(vector[None, :] * tl.where(joined > 0, joined, joined * slope), 1)
        score = tl.where(e < end, score, -float("inf"))
        acc, weights, largest = fold(
            acc, weights, largest, score, rows, e * H + head, low, high, threshold, scale, DROPS
        )
    store_sum(y, log_sums, row * H + head, acc, weights, largest, D, WIDTH)


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _backward_targets(  # type: ignore[no-untyped-def]
    num_dst, indptr, indices, x_src, x_dst, attn, grad, y, log_sums, dots, grad_dst, shares,
    slope,
    low: tl.int64, high: tl.int64, threshold: tl.int64, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    """Go over some destinations: dx_dst, this program's share of d attn, and <dy, y> for the sources' pass."""
    first, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    vector = load_row(attn, head, D, WIDTH)
    share = tl.zeros([WIDTH], tl.float32)
    for row in range(first, num_dst, tl.num_programs(0)):
        at = row * H + head
        gradient, target = load_row(grad, at, D, WIDTH), load_row(x_dst, at, D, WIDTH)
        dot_y = tl.sum(gradient * load_row(y, at, D, WIDTH), 0)
        tl.store(dots + at, dot_y)
        log_sum = tl.load(log_sums + at)
        end = tl.load(indptr + row + 1)
        acc = tl.zeros([WIDTH], tl.float32)
        for start in range(tl.load(indptr + row), end, EDGES):
            e = start + tl.arange(0, EDGES)
            u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
            rows = load_rows(x_src, u, e < end, D, WIDTH)
            joined = rows + target[None, :]
            active = tl.where(joined > 0, joined, joined * slope)
            weight = tl.where(e < end, tl.exp(tl.sum(vector[None, :] * active, 1) - log_sum), 0.0)
            dot = tl.sum(rows * gradient[None, :], 1)
            if DROPS:
                dot = tl.where(kept(e * H + head, low, high, threshold), dot * scale, 0.0)
            change = (weight * (dot - dot_y))[:, None]
            acc += tl.sum(change * tl.where(joined > 0, 1.0, slope), 0)
            share += tl.sum(change * active, 0)
        tl.store(grad_dst + at * D + columns, (vector * acc).to(grad_dst.dtype.element_ty), mask=columns < D)
    tl.store(shares + (first * H + head) * D + columns, share, mask=columns < D)


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _backward_sources(  # type: ignore[no-untyped-def]
    indptr, indices, edges, x_src, x_dst, attn, grad, y, log_sums, dots, grad_src,
    slope,
    low: tl.int64, high: tl.int64, threshold: tl.int64, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    columns = tl.arange(0, WIDTH)
    at = row * H + head
    vector, source = load_row(attn, head, D, WIDTH), load_row(x_src, at, D, WIDTH)
    acc, changes = tl.zeros([WIDTH], tl.float32), tl.zeros([WIDTH], tl.float32)
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        v = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
        gradient = load_rows(grad, v, e < end, D, WIDTH)
        joined = source[None, :] + load_rows(x_dst, v, e < end, D, WIDTH)
        score = tl.sum(vector[None, :] * tl.where(joined > 0, joined, joined * slope), 1)
        log_sum = tl.load(log_sums + v, mask=e < end, other=0.0)
        weight = tl.where(e < end, tl.exp(score - log_sum), 0.0)
        dot = tl.sum(gradient * source[None, :], 1)
        passed = weight
        if DROPS:
            position = tl.load(edges + e, mask=e < end, other=0).to(tl.int64)
            keeps = kept(position * H + head, low, high, threshold)
            dot, passed = tl.where(keeps, dot * scale, 0.0), tl.where(keeps, weight * scale, 0.0)
        acc += tl.sum(passed[:, None] * gradient, 0)
        change = weight * (dot - tl.load(dots + v, mask=e < end, other=0.0))
        changes += tl.sum(change[:, None] * tl.where(joined > 0, 1.0, slope), 0)
    total = acc + vector * changes
    tl.store(grad_src + at * D + columns, total.to(grad_src.dtype.element_ty), mask=columns < D)
