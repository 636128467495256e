"""What edges carry, summed by the weights of each head: rows of edges as they are, for all heads in one pass."""

from __future__ import annotations

from typing import Any

import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.backends import choose
from models.kernels.shapes import check_shape
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.threads import run_rows


def sum_edges(adj: Adjacency, rows: Tensor, weight: Tensor) -> Tensor:
    """y_vhd = sum_{e into v} w_eh f_ed.

    Args:
        adj: the edges.
        rows: f, float32 (E, D), a constant.
        weight: float32 (E, H); differentiable.

    Returns:
        (num_dst, H, D) in the rows' dtype; 0 for destinations without in-edges.

    Raises:
        ValueError: shapes that do not fit together.
    """
    check_shape("rows", rows, adj.num_edges, "D")
    check_shape("weight", weight, adj.num_edges, "H")
    if choose(rows) != "numba" or rows.dtype != weight.dtype:
        return reference_sum_edges(adj, rows, weight)
    return _SumEdges.apply(rows, weight, adj)  # type: ignore[no-untyped-call]


def reference_sum_edges(adj: Adjacency, rows: Tensor, weight: Tensor) -> Tensor:
    """Do `sum_edges` by scattering, a head at a time."""
    targets, start = adj.targets(), rows.new_zeros(adj.num_dst, rows.shape[1])
    return torch.stack([start.index_add(0, targets, one[:, None] * rows) for one in weight.unbind(1)], 1)


class _SumEdges(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor, adj: Adjacency) -> Tensor:
        rows, weight = rows.contiguous(), weight.contiguous()
        y = torch.zeros(adj.num_dst, weight.shape[1], rows.shape[1])
        run_rows(_sum_rows, adj.chunks(), adj.indptr.numpy(), rows.numpy(), weight.numpy(), y.numpy())
        ctx.adj = adj
        ctx.save_for_backward(rows)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (rows,), adj = ctx.saved_tensors, ctx.adj
        grad_weight = torch.empty(adj.num_edges, grad.shape[1])
        arrays = rows.numpy(), grad.contiguous().numpy(), grad_weight.numpy()
        run_rows(_dot_rows, adj.chunks(), adj.indptr.numpy(), *arrays)
        return None, grad_weight, None


@njit(cache=True, nogil=True, fastmath=True)
def _sum_rows(low, high, indptr, rows, weight, y):  # type: ignore[no-untyped-def]
    for row in range(low, high):
        for e in range(indptr[row], indptr[row + 1]):
            for h in range(y.shape[1]):
                share = weight[e, h]
                for d in range(y.shape[2]):
                    y[row, h, d] += share * rows[e, d]


@njit(cache=True, nogil=True, fastmath=True)
def _dot_rows(low, high, indptr, rows, grad, grad_weight):  # type: ignore[no-untyped-def]
    for row in range(low, high):
        for e in range(indptr[row], indptr[row + 1]):
            for h in range(grad.shape[1]):
                dot = grad[row, h, 0] * rows[e, 0]
                for d in range(1, grad.shape[2]):
                    dot += grad[row, h, d] * rows[e, d]
                grad_weight[e, h] = dot
