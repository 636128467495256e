"""The aggregations of `message.py` on GPUs: a program for each node and block of columns. Not yet run on a GPU.

Messages are made again in the backward. The gradient of a table of edges' rows is added up by atomics, in no fixed
order; all else is no race.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.product_triton import block_shape
from models.kernels.sparse.ranges import out_edges

_NO_TERM, _ROWS, _TABLE = 0, 1, 2


def aggregate_triton(
    adj: Adjacency, x: Tensor, term: Tensor | None, codes: Tensor | None, beta: Tensor | None, eps: float
) -> Tensor:
    """Aggregate by a sum, or where there is a `beta` by a mean that softmax weighs."""
    return _AggregateOnGpu.apply(x, term, codes, beta, adj, eps)  # type: ignore[no-untyped-call]


def _shape(width: int, term: Tensor | None, codes: Tensor | None, beta: Tensor | None) -> dict[str, Any]:
    how = _NO_TERM if term is None else _ROWS if codes is None else _TABLE
    return {"MEAN": beta is not None, "TERM": how, **block_shape(width)}


def _on_device(beta: Tensor | None, x: Tensor) -> Tensor:
    """Return beta as kernels read it, on the device: asking for its value would wait for it."""
    return x if beta is None else beta.detach().float().view(1)


class _AggregateOnGpu(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, term: Tensor | None, codes: Tensor | None, beta: Tensor | None, adj: Adjacency, eps: float
    ) -> Tensor:
        x, term = x.contiguous(), None if term is None else term.contiguous()
        y = x.new_empty(adj.num_dst, x.shape[1])
        log_sums = x.new_empty((0,) if beta is None else y.shape, dtype=torch.float32)
        shape = _shape(x.shape[1], term, codes, beta)
        if y.numel():
            _forward[(adj.num_dst, triton.cdiv(x.shape[1], shape["WIDTH"]))](
                adj.indptr, adj.indices, x, x if term is None else term, adj.indices if codes is None else codes,
                _on_device(beta, x), y, log_sums, eps, x.shape[1], **shape,
            )  # fmt: skip
        ctx.save_for_backward(x, term, codes, beta, y, log_sums)
        ctx.adj, ctx.eps = adj, eps
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, term, codes, beta, y, log_sums = ctx.saved_tensors
        grad, (out, positions) = grad.contiguous(), out_edges(ctx.adj, term is not None)
        shape = _shape(x.shape[1], term, codes, beta)
        grad_x, blocks = torch.empty_like(x), triton.cdiv(x.shape[1], shape["WIDTH"])
        grad_term = None
        if term is not None:
            grad_term = torch.empty_like(term) if codes is None else torch.zeros_like(term, dtype=torch.float32)
        shares = x.new_zeros(ctx.adj.num_src, blocks, dtype=torch.float32)
        if x.numel():
            _backward[(ctx.adj.num_src, blocks)](
                out.indptr, out.indices, positions, x, x if term is None else term,
                positions if codes is None else codes, _on_device(beta, x), grad, y, log_sums,
                grad_x, grad_x if grad_term is None else grad_term, shares, ctx.eps, x.shape[1], **shape,
            )  # fmt: skip
        grad_beta = None
        if beta is not None and ctx.needs_input_grad[3]:
            grad_beta = shares.sum(dtype=torch.float64).to(beta.dtype).view(beta.shape)
        return grad_x, None if grad_term is None else grad_term.to(x.dtype), None, grad_beta, None, None


@triton.jit
def _relu(value):  # type: ignore[no-untyped-def]
    return tl.maximum(value, 0.0, propagate_nan=tl.PropagateNan.ALL)  # else NaN becomes 0, on a GPU alone


@triton.jit
def _forward(  # type: ignore[no-untyped-def]
    indptr, indices, x, term, codes, beta, y, log_sums, eps, D,
    MEAN: tl.constexpr, TERM: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    if MEAN:
        scale = tl.load(beta)
    acc, weights = tl.zeros([WIDTH], tl.float32), tl.zeros([WIDTH], tl.float32)
    largest = tl.full([WIDTH], -float("inf"), tl.float32)
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        there = (e < end)[:, None] & (columns < D)[None, :]
        u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64)
        value = tl.load(x + u[:, None] * D + columns[None, :], mask=there, other=0.0).to(tl.float32)
        if TERM != 0:
            at = e
            if TERM == 2:
                at = tl.load(codes + e, mask=e < end, other=0).to(tl.int64)
            value += tl.load(term + at[:, None] * D + columns[None, :], mask=there, other=0.0).to(tl.float32)
        message = _relu(value)
        if not MEAN:
            acc += tl.sum(tl.where(there, message, 0.0), 0)
        else:
            message += eps
            exponent = tl.where((e < end)[:, None], message * scale, -float("inf"))
            top = tl.maximum(largest, tl.max(exponent, 0))
            shrunk, weight = tl.exp(largest - top), tl.exp(exponent - top[None, :])
            weights = weights * shrunk + tl.sum(weight, 0)
            acc = acc * shrunk + tl.sum(weight * message, 0)
            largest = top
    if MEAN:
        tl.store(log_sums + row * D + columns, largest + tl.log(weights), mask=columns < D)
        acc = tl.where(end > begin, acc / weights, 0.0)
    tl.store(y + row * D + columns, acc.to(y.dtype.element_ty), mask=columns < D)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    indptr, indices, edges, x, term, codes, beta, grad, y, log_sums, grad_x, grad_term, shares, eps, D,
    MEAN: tl.constexpr, TERM: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Go over the sources; see `message_rows.mean_rows_backward`."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    if MEAN:
        scale = tl.load(beta)
    source = tl.load(x + row * D + columns, mask=columns < D, other=0.0).to(tl.float32)
    acc, share = tl.zeros([WIDTH], tl.float32), tl.zeros([WIDTH], tl.float32)
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        there = (e < end)[:, None] & (columns < D)[None, :]
        v = tl.load(indices + e, mask=e < end, other=0).to(tl.int64)
        target = v[:, None] * D + columns[None, :]
        change = tl.load(grad + target, mask=there, other=0.0).to(tl.float32)
        value = source[None, :] + tl.zeros([EDGES, WIDTH], tl.float32)
        at = tl.load(edges + e, mask=e < end, other=0).to(tl.int64)
        if TERM == 2:
            at = tl.load(codes + at, mask=e < end, other=0).to(tl.int64)
        if TERM != 0:
            value += tl.load(term + at[:, None] * D + columns[None, :], mask=there, other=0.0).to(tl.float32)
        message = _relu(value) + eps
        if MEAN:
            beyond = message - tl.load(y + target, mask=there, other=0.0).to(tl.float32)
            log_sum = tl.load(log_sums + target, mask=there, other=0.0)
            change = change * tl.where(there, tl.exp(message * scale - log_sum), 0.0)
            share += tl.sum(change * beyond * beyond, 0)
            change = change * (1.0 + scale * beyond)
        change = tl.where(value > 0, change, 0.0)
        acc += tl.sum(change, 0)
        into = grad_term + at[:, None] * D + columns[None, :]
        if TERM == 1:
            tl.store(into, change.to(grad_term.dtype.element_ty), mask=there)
        if TERM == 2:
            tl.atomic_add(into, change, mask=there, sem="relaxed")
    tl.store(grad_x + row * D + columns, acc.to(grad_x.dtype.element_ty), mask=columns < D)
    tl.store(shares + row * tl.num_programs(1) + tl.program_id(1), tl.sum(tl.where(columns < D, share, 0.0), 0))
