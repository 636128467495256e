"""`spmm_max.max_rows` on GPUs: a program for each node and block of columns. Not yet run on a GPU.

A value and its edge's number in the row are one int64: its maximum is the largest value's first edge. No atomics.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.sparse.adjacency import Adjacency


def max_rows_triton(adj: Adjacency, x: Tensor) -> Tensor:
    """y_v = max_{u in N(v)} x_u: x (num_src, D) -> (num_dst, D), 0 without in-edges; NaN passes."""
    return _Max.apply(x, adj)  # type: ignore[no-untyped-call]


def block_shape(width: int) -> dict[str, int]:
    """Return how many edges and columns a program takes at a time, and its warps, for rows of `width` columns."""
    columns = min(128, max(16, triton.next_power_of_2(width)))
    return {"EDGES": 16, "WIDTH": columns, "num_warps": 1 if columns <= 32 else 2 if columns <= 64 else 4}


class _Max(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, adj: Adjacency) -> Tensor:
        x, width = x.contiguous(), x.shape[1]
        y = x.new_empty(adj.num_dst, width)
        rank = x.new_empty(y.shape, dtype=torch.int32)
        shape = block_shape(width)
        if y.numel():
            _forward[(adj.num_dst, triton.cdiv(width, shape["WIDTH"]))](
                adj.indptr, adj.indices, x, y, rank, width, **shape
            )
        ctx.adj = adj
        ctx.save_for_backward(rank)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (rank,), adj, grad = ctx.saved_tensors, ctx.adj, grad.contiguous()
        out, width = adj.transpose(), grad.shape[1]
        grad_x = grad.new_empty(adj.num_src, width)
        shape = block_shape(width)
        if grad_x.numel():
            _backward[(adj.num_src, triton.cdiv(width, shape["WIDTH"]))](
                out.indptr, out.indices, out.edges, adj.indptr, grad, rank, grad_x, width, **shape
            )
        return grad_x, None


@triton.jit
def _forward(indptr, indices, x, y, rank, D, EDGES: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    best = tl.full([WIDTH], -0x7FFFFFFFFFFFFFFF, tl.int64)
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        there = (e < end)[:, None] & (columns < D)[None, :]
        u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64)
        value = tl.load(x + u[:, None] * D + columns[None, :], mask=there, other=0.0).to(tl.float32)
        bits = tl.where(value == 0, 0.0, value).to(tl.int32, bitcast=True)  # -0 is no less than 0
        key = bits ^ ((bits >> 31) & 0x7FFFFFFF)  # integers in the order of the floats
        key = tl.where(value != value, 0x7FFFFFFF, key)  # NaN above all
        first = (0x7FFFFFFF - (e - begin)).to(tl.int64)
        packed = (key.to(tl.int64) << 32) | first[:, None]
        best = tl.maximum(best, tl.max(tl.where(there, packed, -0x7FFFFFFFFFFFFFFF), 0))
    key = (best >> 32).to(tl.int32)
    value = (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    value = tl.where(key == 0x7FFFFFFF, float("nan"), value)
    value = tl.where(end > begin, value, 0.0)
    which = (0x7FFFFFFF - (best & 0x7FFFFFFF)).to(tl.int32)
    tl.store(y + row * D + columns, value.to(y.dtype.element_ty), mask=columns < D)
    tl.store(rank + row * D + columns, which, mask=columns < D)


@triton.jit
def _backward(  # type: ignore[no-untyped-def]
    out_indptr, out_indices, out_edges, indptr, grad, rank, grad_x, D, EDGES: tl.constexpr, WIDTH: tl.constexpr
):
    """Go over the sources; a gradient is the edge's whose number in its row was kept."""
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    begin, end = tl.load(out_indptr + row), tl.load(out_indptr + row + 1)
    acc = tl.zeros([WIDTH], tl.float32)
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        there = (e < end)[:, None] & (columns < D)[None, :]
        v = tl.load(out_indices + e, mask=e < end, other=0).to(tl.int64)
        own = tl.load(out_edges + e, mask=e < end, other=0).to(tl.int64) - tl.load(indptr + v, mask=e < end, other=0)
        target = v[:, None] * D + columns[None, :]
        change = tl.load(grad + target, mask=there, other=0.0).to(tl.float32)
        same = tl.load(rank + target, mask=there, other=-1) == own[:, None]
        acc += tl.sum(tl.where(same, change, 0.0), 0)
    tl.store(grad_x + row * D + columns, acc.to(grad_x.dtype.element_ty), mask=columns < D)
