"""Sparse times dense (g-SpMM): sum source rows over each destination's in-edges; nothing of size E x D is stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.shapes import check_rows, check_shape
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.product import multiply
from models.kernels.sparse.sddmm import dot_edges


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
        x: float32 or bfloat16 (num_src, D), or (num_src, H, D); differentiable.
        weight: float32 (E,) in the order of the edges, or (E, H) for x of H heads, or None for ones; differentiable.
        source_scale: float32 (num_src,) or None; a constant.
        target_scale: float32 (num_dst,) or None; a constant.

    Returns:
        (num_dst, D) or (num_dst, H, D) in x's dtype, accumulated in float32; 0 for destinations without in-edges.

    Raises:
        ValueError: shapes that do not fit together.
    """
    check_rows("x", x, adj.num_src)
    if not x.is_floating_point():
        raise ValueError(f"x must be of a floating dtype, not {x.dtype}")
    by_head = (adj.num_edges, *x.shape[1:-1])
    if weight is not None and weight.shape != (adj.num_edges,) and (x.dim() == 2 or weight.shape != by_head):
        shapes = f"({adj.num_edges},)" if x.dim() == 2 else f"({adj.num_edges},) or {by_head}"
        raise ValueError(f"weight must be {shapes}, not {tuple(weight.shape)}")
    if source_scale is not None:
        check_shape("source_scale", source_scale, adj.num_src)
    if target_scale is not None:
        check_shape("target_scale", target_scale, adj.num_dst)
    if x.dim() == 3 and (weight is None or weight.dim() == 1):  # heads are columns
        y = weighted_sum(adj, x.flatten(1), weight, source_scale, target_scale)
        return y.view(adj.num_dst, *x.shape[1:])
    return _WeightedSum.apply(x, weight, adj, source_scale, target_scale)  # type: ignore[no-untyped-call]


def reference_weighted_sum(adj: Adjacency, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """Do `weighted_sum` without scales by gather and scatter, E x D messages and all."""
    messages = x[adj.indices.long()]
    if weight is not None:
        messages = messages * weight.view(*weight.shape, *[1] * (x.dim() - weight.dim()))
    return x.new_zeros(adj.num_dst, *x.shape[1:]).index_add(0, adj.targets(), messages)


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
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        adj, (source_scale, target_scale) = ctx.adj, ctx.scales
        x, weight = ctx.saved_tensors
        grad_x = grad_weight = None
        if ctx.needs_input_grad[0]:
            edges = None if weight is None else adj.transpose().edges
            reverse = adj.reverse(ordered=weight is not None)
            grad_x = multiply(reverse, grad, weight, edges, target_scale, source_scale)
        if ctx.needs_input_grad[1]:
            grad_weight = dot_edges(adj, x, grad, source_scale, target_scale).to(weight.dtype)
        return grad_x, grad_weight, None, None, None
