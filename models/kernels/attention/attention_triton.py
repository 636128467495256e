"""GAT's and GATv2's attention on GPUs: a program for each node and head goes over its edges in blocks.

Not yet run on a GPU. No atomics: gradients of sources are summed over their out-edges, those of destinations over their
in-edges; a program that sums over destinations has a row of its own for the gradient of `attn`. Kernels take the two in
one: `source` holds GAT's scores of sources, or GATv2's `attn`; `target` GAT's scores of destinations, or GATv2's rows.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.attention.edge_dropout import EdgeDropout
from models.kernels.sparse.adjacency import Adjacency, out_edges

_EDGES = 16
"""Edges of a block: with 64 columns, 1024 numbers in a warp or two."""
_PROGRAMS = 2048
"""Programs a head at most that go over GATv2's destinations in the backward: each writes a row of H x D."""


def gat_attention_triton(
    adj: Adjacency, x: Tensor, score_src: Tensor, score_dst: Tensor, slope: float, rule: EdgeDropout
) -> Tensor:
    """Do `attention.gat_attention`; scores are float32."""
    return _AttentionOnGpu.apply(x, score_src, score_dst, adj, slope, rule)  # type: ignore[no-untyped-call]


def gatv2_attention_triton(
    adj: Adjacency, x_src: Tensor, x_dst: Tensor, attn: Tensor, slope: float, rule: EdgeDropout
) -> Tensor:
    """Do `attention.gatv2_attention`; attn is float32."""
    return _AttentionOnGpu.apply(x_src, attn, x_dst, adj, slope, rule)  # type: ignore[no-untyped-call]


def _shape(x: Tensor, target: Tensor, rule: EdgeDropout) -> dict[str, Any]:
    """Return what kernels are compiled for: widths padded to a power of two, whether weights are dropped, GATv2."""
    heads, dim = x.shape[1:]
    width = max(16, triton.next_power_of_2(dim))
    warps = 1 if width <= 32 else 2 if width <= 128 else 4
    kinds = {"DROPS": rule.threshold > 0, "V2": target.dim() == 3}
    return {"H": heads, "D": dim, "EDGES": _EDGES, "WIDTH": width, **kinds, "num_warps": warps}


class _AttentionOnGpu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, source: Tensor, target: Tensor, adj: Adjacency, slope: float, rule: EdgeDropout
    ) -> Tensor:
        x, source, target = x.contiguous(), source.contiguous(), target.contiguous()
        y = x.new_empty(adj.num_dst, *x.shape[1:])
        log_sums = x.new_empty(y.shape[:2], dtype=torch.float32)
        chances = (slope, rule.low, rule.high, rule.threshold, rule.scale)
        if adj.num_dst:
            _forward[(adj.num_dst, x.shape[1])](
                adj.indptr, adj.indices, x, source, target, y, log_sums, *chances, **_shape(x, target, rule)
            )
        ctx.save_for_backward(x, source, target, y, log_sums)
        ctx.adj, ctx.rule, ctx.chances = adj, rule, chances
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, source, target, y, log_sums = ctx.saved_tensors
        adj, grad, shape = ctx.adj, grad.contiguous(), _shape(x, target, ctx.rule)
        (out, positions), heads, is_v2 = out_edges(adj, ctx.rule.threshold > 0), x.shape[1], shape["V2"]
        given = (x, source, target, grad, y, log_sums)
        dots, grad_target, grad_x = torch.empty_like(log_sums), torch.empty_like(target), torch.empty_like(x)
        programs = min(adj.num_dst, _PROGRAMS) if is_v2 else adj.num_dst
        # GATv2's is summed with the destinations, GAT's with the sources.
        grad_source = source.new_zeros(programs, *source.shape) if is_v2 else torch.empty_like(source)
        if programs:
            _backward_targets[(programs, heads)](
                adj.num_dst, adj.indptr, adj.indices, *given, dots, grad_target, grad_source, *ctx.chances, **shape
            )
        if adj.num_src:
            _backward_sources[(adj.num_src, heads)](
                out.indptr, out.indices, positions, *given, dots, grad_x, grad_source, *ctx.chances, **shape
            )
        return grad_x, grad_source.sum(0) if is_v2 else grad_source, grad_target, None, None, None


@triton.jit
def _mix(word):  # type: ignore[no-untyped-def]
    word = (word ^ (word >> 16)) * tl.full([], 0x85EBCA6B, tl.uint32)
    word = (word ^ (word >> 13)) * tl.full([], 0xC2B2AE35, tl.uint32)
    return word ^ (word >> 16)


@triton.jit
def _kept(counter, low, high, threshold):  # type: ignore[no-untyped-def]
    """Return whether the weight of a counter is kept, by the hash of `edge_dropout`."""
    word = _mix(counter.to(tl.uint32) ^ tl.cast(low, tl.uint32))
    return _mix(word + tl.cast(high, tl.uint32)) >= tl.cast(threshold, tl.uint32)


@triton.jit
def _load_row(x, row, D: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a row of D columns in float32, padded with 0 to (WIDTH,)."""
    columns = tl.arange(0, WIDTH)
    return tl.load(x + row * D + columns, mask=columns < D, other=0.0).to(tl.float32)


@triton.jit
def _load_rows(x, rows, there, D: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return rows, (EDGES, WIDTH), likewise; 0 where they are not there."""
    columns = tl.arange(0, WIDTH)
    mask = there[:, None] & (columns < D)[None, :]
    return tl.load(x + rows[:, None] * D + columns[None, :], mask=mask, other=0.0).to(tl.float32)


@triton.jit
def _leaky(x, slope):  # type: ignore[no-untyped-def]
    return tl.where(x > 0, x, x * slope)


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _forward(  # type: ignore[no-untyped-def]
    indptr, indices, x, source, target, y, log_sums, slope,
    low: tl.int64, high: tl.int64, threshold: tl.int64, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr, V2: tl.constexpr,
):  # fmt: skip
    """Softmax block by block: where the largest score grows, what was summed shrinks."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    at, columns = row * H + head, tl.arange(0, WIDTH)
    if V2:
        vector, target_row = _load_row(source, head, D, WIDTH), _load_row(target, at, D, WIDTH)
    else:
        target_row = tl.load(target + at)
    acc = tl.zeros([WIDTH], tl.float32)
    weights, largest = 0.0, -float("inf")
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
        rows = _load_rows(x, u, e < end, D, WIDTH)
        if V2:
            score = tl.sum(vector[None, :] * _leaky(rows + target_row[None, :], slope), 1)
        else:
            score = _leaky(tl.load(source + u, mask=e < end, other=0.0) + target_row, slope)
        score = tl.where(e < end, score, -float("inf"))
        top = tl.maximum(largest, tl.max(score, 0))
        shrunk, weight = tl.exp(largest - top), tl.exp(score - top)
        weights = weights * shrunk + tl.sum(weight, 0)
        if DROPS:
            weight = tl.where(_kept(e * H + head, low, high, threshold), weight * scale, 0.0)
        acc, largest = acc * shrunk + tl.sum(weight[:, None] * rows, 0), top
    mean = tl.where(weights > 0, acc / weights, acc)
    tl.store(y + at * D + columns, mean.to(y.dtype.element_ty), mask=columns < D)
    tl.store(log_sums + at, largest + tl.log(weights))


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _backward_targets(  # type: ignore[no-untyped-def]
    num_dst, indptr, indices, x, source, target, grad, y, log_sums, dots, grad_target, shares, slope,
    low: tl.int64, high: tl.int64, threshold: tl.int64, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr, V2: tl.constexpr,
):  # fmt: skip
    """Go over some destinations: their gradients, this program's share of d attn, and <dy, y> for the sources' pass."""
    first, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    columns = tl.arange(0, WIDTH)
    if V2:
        vector, share = _load_row(source, head, D, WIDTH), tl.zeros([WIDTH], tl.float32)
    for row in range(first, num_dst, tl.num_programs(0)):
        at = row * H + head
        gradient = _load_row(grad, at, D, WIDTH)
        dot_y, log_sum = tl.sum(gradient * _load_row(y, at, D, WIDTH), 0), tl.load(log_sums + at)
        tl.store(dots + at, dot_y)
        if V2:
            target_row, acc = _load_row(target, at, D, WIDTH), tl.zeros([WIDTH], tl.float32)
        else:
            target_row, acc = tl.load(target + at), 0.0
        end = tl.load(indptr + row + 1)
        for start in range(tl.load(indptr + row), end, EDGES):
            e = start + tl.arange(0, EDGES)
            u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
            rows = _load_rows(x, u, e < end, D, WIDTH)
            if V2:
                joined = rows + target_row[None, :]
                score = tl.sum(vector[None, :] * _leaky(joined, slope), 1)
            else:
                joined = tl.load(source + u, mask=e < end, other=0.0) + target_row
                score = _leaky(joined, slope)
            weight = tl.where(e < end, tl.exp(score - log_sum), 0.0)
            dot = tl.sum(rows * gradient[None, :], 1)
            if DROPS:
                dot = tl.where(_kept(e * H + head, low, high, threshold), dot * scale, 0.0)
            change = weight * (dot - dot_y)
            if V2:
                share += tl.sum(change[:, None] * _leaky(joined, slope), 0)
                change = change[:, None]
            acc += tl.sum(change * tl.where(joined > 0, 1.0, slope), 0)
        if V2:
            tl.store(grad_target + at * D + columns, (vector * acc).to(grad_target.dtype.element_ty), mask=columns < D)
        else:
            tl.store(grad_target + at, acc)
    if V2:
        tl.store(shares + (first * H + head) * D + columns, share, mask=columns < D)


@triton.jit(do_not_specialize=["low", "high", "threshold"])
def _backward_sources(  # type: ignore[no-untyped-def]
    indptr, indices, edges, x, source, target, grad, y, log_sums, dots, grad_x, grad_source, slope,
    low: tl.int64, high: tl.int64, threshold: tl.int64, scale,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr, V2: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    at, columns = row * H + head, tl.arange(0, WIDTH)
    value, acc = _load_row(x, at, D, WIDTH), tl.zeros([WIDTH], tl.float32)
    if V2:
        vector, changes = _load_row(source, head, D, WIDTH), tl.zeros([WIDTH], tl.float32)
    else:
        source_row, changes = tl.load(source + at), 0.0
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        v = tl.load(indices + e, mask=e < end, other=0).to(tl.int64) * H + head
        rows = _load_rows(grad, v, e < end, D, WIDTH)
        if V2:
            joined = value[None, :] + _load_rows(target, v, e < end, D, WIDTH)
            score = tl.sum(vector[None, :] * _leaky(joined, slope), 1)
        else:
            joined = tl.load(target + v, mask=e < end, other=0.0) + source_row
            score = _leaky(joined, slope)
        log_sum = tl.load(log_sums + v, mask=e < end, other=0.0)
        weight = tl.where(e < end, tl.exp(score - log_sum), 0.0)
        dot = tl.sum(rows * value[None, :], 1)
        passed = weight
        if DROPS:
            position = tl.load(edges + e, mask=e < end, other=0).to(tl.int64)
            keeps = _kept(position * H + head, low, high, threshold)
            dot, passed = tl.where(keeps, dot * scale, 0.0), tl.where(keeps, weight * scale, 0.0)
        acc += tl.sum(passed[:, None] * rows, 0)
        change = weight * (dot - tl.load(dots + v, mask=e < end, other=0.0))
        if V2:
            change = change[:, None]
        changes += tl.sum(change * tl.where(joined > 0, 1.0, slope), 0)
    if V2:
        acc += vector * changes
    else:
        tl.store(grad_source + at, changes)
    tl.store(grad_x + at * D + columns, acc.to(grad_x.dtype.element_ty), mask=columns < D)
