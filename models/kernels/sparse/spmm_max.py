"""The maximum over in-neighbours, column by column, with a deterministic gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.backends import choose, widen
from models.kernels.simd import _llvm
from models.kernels.simd._llvm import INT
from models.kernels.simd.vector import (
    FAR,
    NEAR,
    WIDEST,
    instruction,
    load,
    prefetch,
    prefetch_far,
    storage,
    store,
    tiles,
    zeros,
)
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.product import source
from models.kernels.threads import run_rows

MAX_WIDEST = WIDEST // 2  # a maximum and its rank a column, both in registers


def max_rows(adj: Adjacency, x: Tensor) -> Tensor:
    """y_v = max_{u in N(v)} x_u: x (num_src, D) -> (num_dst, D), 0 without in-edges; NaN passes."""
    backend = choose(x)
    if backend == "torch":
        return reference_max(adj, widen(x)).to(x.dtype)
    if backend == "triton":
        from models.kernels.sparse.spmm_max_triton import max_rows_triton

        return max_rows_triton(adj, x)
    return _Max.apply(x, adj)  # type: ignore[no-untyped-call]


def reference_max(adj: Adjacency, x: Tensor) -> Tensor:
    """Do `max_rows` by gather and scatter; the gradient is shared among equal sources. Not yet run on a GPU."""
    rows = adj.targets().unsqueeze(1).expand(-1, x.shape[1])
    start = x.new_full((adj.num_dst, x.shape[1]), -torch.inf)
    y = start.scatter_reduce(0, rows, x[adj.indices.long()], "amax", include_self=True)
    return y.masked_fill((adj.degrees() == 0).unsqueeze(1), 0)


class _Max(torch.autograd.Function):
    """Keeps, for each result, which of the row's in-edges it came from; the gradient is gathered by source."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adj: Adjacency) -> Tensor:
        y, rank = take_maxima(x, adj.chunks(), adj.indptr, adj.indices)
        ctx.adj = adj
        ctx.save_for_backward(rank)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (rank,), adj, grad = ctx.saved_tensors, ctx.adj, grad.contiguous()
        out, width = adj.transpose(), grad.shape[1]
        grad_x = torch.empty(adj.num_src, width, dtype=grad.dtype)
        edges = (out.indptr.numpy(), out.indices.numpy(), out.edges.numpy(), adj.indptr.numpy())
        for column, lanes, count in tiles(width, MAX_WIDEST):
            place = (lanes, count, width, column)
            run_rows(_gather_rows, adj.reverse().chunks(), *place, *edges, storage(grad), bits(rank), storage(grad_x))
        return grad_x, None


def take_maxima(x: Tensor, bounds: NDArray[np.int64], indptr: Tensor, indices: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the maximum over each row's in-edges and, int32, the number in the row of the edge that it came from.

    Without indices row e of x is that of edge e.
    """
    y = torch.empty(len(indptr) - 1, x.shape[1], dtype=x.dtype)
    rank = torch.empty(y.shape, dtype=torch.int32)
    sources = None if indices is None else indices.numpy()
    arrays = (indptr.numpy(), sources, storage(x.contiguous()), storage(y), bits(rank))
    for column, lanes, count in tiles(x.shape[1], MAX_WIDEST):
        run_rows(_max_of_rows, bounds, lanes, count, x.shape[1], column, *arrays)
    return y, rank


def _is_larger(builder: Any, best: Any, value: Any) -> Any:
    """Whether to take the value: NaN is larger than all."""
    return builder.or_(builder.fcmp_ordered(">", value, best), builder.fcmp_unordered("uno", value, value))


@instruction
def _larger(typing, best, value):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        return builder.select(_is_larger(builder, *args), args[1], args[0])

    return best(best, value), generate


@instruction
def _rank_of_larger(typing, best, value, number, which):  # type: ignore[no-untyped-def]
    """Return number's bits where the value is taken, else which."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        bits = _llvm.splat(builder, builder.bitcast(args[2], _llvm.FLOAT), signature.return_type.lanes)
        return builder.select(_is_larger(builder, args[0], args[1]), bits, args[3])

    return which(best, value, types.int32, which), generate


@instruction
def where_rank(typing, which, number, value):  # type: ignore[no-untyped-def]
    """Return the value where which has number's bits, else 0."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        bits = builder.bitcast(args[0], ir.VectorType(INT, lanes))
        same = builder.icmp_signed("==", bits, _llvm.splat(builder, args[1], lanes))
        return builder.select(same, args[2], _llvm.constant(_llvm.FLOAT, lanes, 0.0))

    return value(which, types.int32, value), generate


def bits(rank: Tensor) -> Any:
    """Return int32 numbers as the bits of floats: vectors load, choose and store them without touching a bit."""
    return rank.view(-1).numpy().view(np.float32)


@njit(cache=True, nogil=True)
def _max_of_rows(low, high, lanes, count, stride, column, indptr, indices, x, y, rank):  # type: ignore[no-untyped-def]
    last = indptr[high]
    for row in range(low, high):
        first, at = indptr[row], row * stride + column
        best, which = zeros(lanes), zeros(lanes)  # the bits of zero are rank 0
        if first < indptr[row + 1]:
            best = load(lanes, x, source(indices, first) * stride + column, count)
        for e in range(first, indptr[row + 1]):
            if e + FAR < last:
                prefetch_far(lanes, x, source(indices, e + FAR) * stride + column)
            if e + NEAR < last:
                prefetch(lanes, x, source(indices, e + NEAR) * stride + column)
            value = load(lanes, x, source(indices, e) * stride + column, count)
            which = _rank_of_larger(best, value, np.int32(e - first), which)
            best = _larger(best, value)
        store(lanes, y, at, best, count)
        store(lanes, rank, at, which, count)


@njit(cache=True, nogil=True)
def _gather_rows(  # type: ignore[no-untyped-def]
    low, high, lanes, count, stride, column, out_indptr, out_indices, out_edges, indptr, grad, rank, grad_x
):
    last = out_indptr[high]
    for row in range(low, high):
        acc = zeros(lanes)
        for e in range(out_indptr[row], out_indptr[row + 1]):
            if e + FAR < last:
                ahead = np.int64(out_indices[e + FAR]) * stride + column
                prefetch_far(lanes, grad, ahead)
                prefetch_far(lanes, rank, ahead)
            if e + NEAR < last:
                ahead = np.int64(out_indices[e + NEAR]) * stride + column
                prefetch(lanes, grad, ahead)
                prefetch(lanes, rank, ahead)
            v = np.int64(out_indices[e])
            at = v * stride + column
            own = np.int32(out_edges[e] - indptr[v])
            acc = acc + where_rank(load(lanes, rank, at, count), own, load(lanes, grad, at, count))
        store(lanes, grad_x, row * stride + column, acc, count)
