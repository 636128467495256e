"""A number of an edge's source and one of its target, added up: GAT's scores, where an edge adds something itself."""

from __future__ import annotations

from typing import Any

import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.backends import choose, widen
from models.kernels.shapes import check_shape
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.ranges import out_edges
from models.kernels.threads import run_rows


def sum_ends(adj: Adjacency, source: Tensor, target: Tensor) -> Tensor:
    """s_eh = source_uh + target_vh for each edge e = (u, v).

    Args:
        adj: the edges.
        source: (num_src, H), any floating dtype; differentiable.
        target: (num_dst, H); differentiable.

    Returns:
        float32 (E, H), in the order of the edges; of float64 rows float64.

    Raises:
        ValueError: shapes that do not fit together.
    """
    check_shape("source", source, adj.num_src, "H")
    check_shape("target", target, adj.num_dst, source.shape[1])
    source, target = widen(source), widen(target)
    if choose(source) != "numba":
        return source[adj.indices.long()] + target[adj.targets()]
    return _Sum.apply(source, target, adj)  # type: ignore[no-untyped-call]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, source: Tensor, target: Tensor, adj: Adjacency) -> Tensor:
        ctx.adj = adj
        sums = torch.empty(adj.num_edges, source.shape[1])
        rows = source.contiguous().numpy(), target.contiguous().numpy(), sums.numpy()
        run_rows(_sum_rows, adj.chunks(), adj.indptr.numpy(), adj.indices.numpy(), *rows)
        return sums

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        adj, rows = ctx.adj, grad.contiguous().numpy()
        out, positions = out_edges(adj, needs_positions=True)
        grad_source, grad_target = (torch.zeros(count, grad.shape[1]) for count in (adj.num_src, adj.num_dst))
        run_rows(_gather_rows, out.chunks(), out.indptr.numpy(), positions.numpy(), rows, grad_source.numpy())
        run_rows(_gather_rows, adj.chunks(), adj.indptr.numpy(), None, rows, grad_target.numpy())
        return grad_source, grad_target, None


@njit(cache=True, nogil=True)
def _sum_rows(low, high, indptr, indices, source, target, sums):  # type: ignore[no-untyped-def]
    for row in range(low, high):
        for e in range(indptr[row], indptr[row + 1]):
            u = indices[e]
            for h in range(sums.shape[1]):
                sums[e, h] = source[u, h] + target[row, h]


@njit(cache=True, nogil=True)
def _gather_rows(low, high, indptr, positions, rows, out):  # type: ignore[no-untyped-def]
    """Sum the rows (E, H) of each node's edges, whose places are given, or are those from indptr on."""
    for row in range(low, high):
        for i in range(indptr[row], indptr[row + 1]):
            e = i if positions is None else positions[i]
            for h in range(out.shape[1]):
                out[row, h] += rows[e, h]
