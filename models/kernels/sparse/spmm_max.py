"""The maximum over in-neighbours, column by column, with a deterministic gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.backends import widen
from models.kernels.shapes import check_shape
from models.kernels.simd import _llvm
from models.kernels.simd._llvm import INT
from models.kernels.simd.vector import WIDEST, ask_ahead, has_kernels, instruction, load, storage, store, tiles, zeros
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.threads import run_rows

_WIDEST_MAX = WIDEST // 2  # a maximum and its rank a column, both in registers


def max_rows(adj: Adjacency, x: Tensor) -> Tensor:
    """y_v = max_{u in N(v)} x_u, column by column: what each destination receives at most from its in-neighbours.

    Args:
        adj: the edges.
        x: float32 or bfloat16 (num_src, D); differentiable.

    Returns:
        (num_dst, D) in x's dtype; 0 for destinations without in-edges; NaN passes. The gradient goes to the first of
        equal sources (on a GPU it is shared among them); edges in parallel count once.

    Raises:
        ValueError: another shape.
    """
    check_shape("x", x, adj.num_src, "D")
    if not has_kernels(x):
        return reference_max(adj, widen(x)).to(x.dtype)
    return _NeighborMax.apply(x, adj)  # type: ignore[no-untyped-call]


def reference_max(adj: Adjacency, x: Tensor) -> Tensor:
    """Do `max_rows` by gather and scatter; the gradient is shared among equal sources. Not yet run on a GPU."""
    rows = adj.targets().unsqueeze(1).expand(-1, x.shape[1])
    start = x.new_full((adj.num_dst, x.shape[1]), -torch.inf)
    y = start.scatter_reduce(0, rows, x[adj.indices.long()], "amax", include_self=True)
    return y.masked_fill((adj.degrees() == 0).unsqueeze(1), 0)


class _NeighborMax(torch.autograd.Function):
    """Keeps, for each result, which of the row's in-edges it came from; the gradient is gathered by source."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, adj: Adjacency) -> Tensor:
        width = x.shape[1]
        y = torch.empty(adj.num_dst, width, dtype=x.dtype)
        rank = torch.empty(y.shape, dtype=torch.int32)  # the number in the row of the edge that a maximum came from
        arrays = (adj.indptr.numpy(), adj.indices.numpy(), storage(x.contiguous()), storage(y), _bits(rank))
        for column, lanes, count in tiles(width, _WIDEST_MAX):
            run_rows(_max_of_rows, adj.chunks(), lanes, count, width, column, *arrays)
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
        for column, lanes, count in tiles(width, _WIDEST_MAX):
            place = (lanes, count, width, column)
            run_rows(_gather_rows, adj.reverse().chunks(), *place, *edges, storage(grad), _bits(rank), storage(grad_x))
        return grad_x, None


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
def _where_rank(typing, which, number, value):  # type: ignore[no-untyped-def]
    """Return the value where which has number's bits, else 0."""

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        lanes = signature.return_type.lanes
        bits = builder.bitcast(args[0], ir.VectorType(INT, lanes))
        same = builder.icmp_signed("==", bits, _llvm.splat(builder, args[1], lanes))
        return builder.select(same, args[2], _llvm.constant(_llvm.FLOAT, lanes, 0.0))

    return value(which, types.int32, value), generate


def _bits(rank: Tensor) -> Any:
    """Return int32 numbers as the bits of floats: vectors load, choose and store them without touching a bit."""
    return rank.view(-1).numpy().view(np.float32)


@njit(cache=True, nogil=True)
def _max_of_rows(low, high, lanes, count, stride, column, indptr, indices, x, y, rank):  # type: ignore[no-untyped-def]
    last = indptr[high]
    for row in range(low, high):
        first, at = indptr[row], row * stride + column
        best, which = zeros(lanes), zeros(lanes)  # the bits of zero are rank 0
        if first < indptr[row + 1]:
            best = load(lanes, x, np.int64(indices[first]) * stride + column, count)
        for e in range(first, indptr[row + 1]):
            ask_ahead(lanes, x, indices, e, last, stride, column)
            value = load(lanes, x, np.int64(indices[e]) * stride + column, count)
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
            ask_ahead(lanes, grad, out_indices, e, last, stride, column)
            ask_ahead(lanes, rank, out_indices, e, last, stride, column)
            v = np.int64(out_indices[e])
            at = v * stride + column
            edge_rank = np.int32(out_edges[e] - indptr[v])
            acc = acc + _where_rank(load(lanes, rank, at, count), edge_rank, load(lanes, grad, at, count))
        store(lanes, grad_x, row * stride + column, acc, count)
