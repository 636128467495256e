"""Sparse times dense (g-SpMM): reduce source rows over each destination's in-edges; nothing of size E x D is stored."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor

from models.kernels.adjacency import Adjacency
from models.kernels.threads import run_rows
from models.kernels.vector import FAR, NEAR, load, prefetch, prefetch_far, storage, store, tiles, zeros


def reference_spmm(adj: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """Do `weighted_sum` by gather and scatter, E x D messages and all."""
    rows = torch.repeat_interleave(adj.indptr[1:] - adj.indptr[:-1])
    messages = x[adj.indices.long()]
    if weight is not None:
        messages = messages * weight.unsqueeze(1)
    return torch.zeros(adj.num_dst, x.shape[1], dtype=x.dtype).index_add(0, rows, messages)


def weighted_sum(
    adj: Adjacency,
    x: Tensor,
    weight: Tensor | None = None,
    source_scale: Tensor | None = None,
    target_scale: Tensor | None = None,
) -> Tensor:
    """y_v = t_v sum_{e = (u, v)} w_e s_u x_u: the product of a sparse matrix, scaled on both sides, with a dense one.

    Args:
        adj: the edges.
        x: float32 or bfloat16 (num_src, D); differentiable.
        weight: float32 (E,) in the order of the edges, or None for ones; differentiable.
        source_scale: float32 (num_src,) or None; a constant.
        target_scale: float32 (num_dst,) or None; a constant.

    Returns:
        (num_dst, D) in x's dtype, accumulated in float32; 0 for destinations without in-edges.
    """
    return _WeightedSum.apply(x, weight, adj, source_scale, target_scale)  # type: ignore[no-untyped-call]


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor | None,
        adj: Adjacency,
        source_scale: Tensor | None,
        target_scale: Tensor | None,
    ) -> Tensor:
        ctx.adj, ctx.scales = adj, (source_scale, target_scale)
        ctx.save_for_backward(x if weight is not None and weight.requires_grad else None, weight)
        return multiply(adj, x, weight, None, source_scale, target_scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        adj, (source_scale, target_scale) = ctx.adj, ctx.scales
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            edges = None if weight is None else adj.transpose().edges
            grad_x = multiply(adj.reverse(), grad, weight, edges, target_scale, source_scale)
        if ctx.needs_input_grad[1]:
            from models.kernels.sddmm import dot_edges

            grad_weight = dot_edges(adj, x, grad, source_scale, target_scale)
        return grad_x, grad_weight, None, None, None


def multiply(
    adj: Adjacency,
    x: Tensor,
    weight: Tensor | None,
    edges: Tensor | None,
    source_scale: Tensor | None,
    target_scale: Tensor | None,
) -> Tensor:
    """Compute `weighted_sum` without gradients; edge e has weight[edges[e]], or weight[e] where edges is None."""
    if x.is_cuda or x.dtype not in (torch.float32, torch.bfloat16):  # float64 is for the tests of gradients
        return _multiply_torch(adj, x, weight, edges, source_scale, target_scale)
    x = x.contiguous()
    y = torch.empty(adj.num_dst, x.shape[1], dtype=x.dtype)
    given = (weight, edges, source_scale, target_scale)
    factors = [None if tensor is None else tensor.detach().numpy() for tensor in given]
    for column, lanes, count in tiles(x.shape[1]):
        tile = (lanes, count, x.shape[1], column)
        run_rows(
            _sum_rows, adj.chunks(), *tile, adj.indptr.numpy(), adj.indices.numpy(), storage(x), *factors, storage(y)
        )
    return y


@njit(cache=True, nogil=True)
def _sum_rows(  # type: ignore[no-untyped-def]
    low, high, lanes, count, stride, column, indptr, indices, x, weight, edges, source_scale, target_scale, y
):
    last = indptr[high]
    for row in range(low, high):
        acc = zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            if e + FAR < last:
                prefetch_far(lanes, x, np.int64(indices[e + FAR]) * stride + column)
            if e + NEAR < last:
                prefetch(lanes, x, np.int64(indices[e + NEAR]) * stride + column)
            u = np.int64(indices[e])
            value = load(lanes, x, u * stride + column, count)
            if weight is not None:
                value = value * (weight[e] if edges is None else weight[edges[e]])
            if source_scale is not None:
                value = value * source_scale[u]
            acc = acc + value
        if target_scale is not None:
            acc = acc * target_scale[row]
        store(lanes, y, row * stride + column, acc, count)


def _multiply_torch(
    adj: Adjacency,
    x: Tensor,
    weight: Tensor | None,
    edges: Tensor | None,
    source_scale: Tensor | None,
    target_scale: Tensor | None,
) -> Tensor:
    """Multiply with cuSPARSE (not yet run on a GPU) or, on the CPU, MKL."""
    if weight is None:
        values = torch.ones(adj.num_edges, dtype=x.dtype, device=x.device)
    else:
        values = (weight if edges is None else weight[edges.long()]).to(x.dtype)
    if source_scale is not None:
        x = x * source_scale.unsqueeze(1).to(x.dtype)
    y = _csr(adj, values) @ x
    return y if target_scale is None else y * target_scale.unsqueeze(1).to(y.dtype)


def _csr(adj: Adjacency, values: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        return torch.sparse_csr_tensor(
            adj.indptr.to(adj.indices.dtype), adj.indices, values, (adj.num_dst, adj.num_src), check_invariants=False
        )
