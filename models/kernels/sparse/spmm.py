"""Sparse times dense (g-SpMM): reduce source rows over each destination's in-edges; nothing of size E x D is stored."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.shapes import check_rows, check_shape
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.product import multiply
from models.kernels.sparse.sddmm import dot_edges
from models.kernels.sparse.spmm_max import max_rows, reference_max


def spmm(adj: Adjacency, x: Tensor, reduce: str = "sum", weight: Tensor | None = None) -> Tensor:
    """y_v = reduce_{e = (u, v)} w_e x_u: what each destination receives from its in-neighbours.

    Args:
        adj: the edges.
        x: float32 or bfloat16 (num_src, D), or (num_src, H, D); differentiable.
        reduce: `sum`, `mean` (the sum divided by the number of in-edges) or `max`.
        weight: float32 (E,), or (E, H) for x of H heads; None for ones; differentiable.

    Returns:
        (num_dst, D) or (num_dst, H, D) in x's dtype, accumulated in float32; 0 for destinations without in-edges. The
        maximum's gradient goes to the first of equal sources (on a GPU without Triton it is shared among them);
        edges in parallel count once.

    Raises:
        ValueError: the reduction is unknown, a maximum is to be weighted, or shapes do not fit together.
    """
    if reduce == "max":
        if weight is not None:
            raise ValueError("spmm takes no weights with reduce='max'; use sum or mean")
        _check(adj, x, None)
        if x.dim() == 2:
            return max_rows(adj, x)
        return max_rows(adj, x.flatten(1)).view(adj.num_dst, *x.shape[1:])  # heads are columns
    if reduce not in ("sum", "mean"):
        raise ValueError(f"reduce is sum, mean or max, not {reduce!r}")
    return weighted_sum(adj, x, weight, target_scale=adj.degree_scale() if reduce == "mean" else None)


def _check(adj: Adjacency, x: Tensor, weight: Tensor | None) -> None:
    check_rows("x", x, adj.num_src)
    if not x.is_floating_point():
        raise ValueError(f"x must be of a floating dtype, not {x.dtype}")
    if weight is None or weight.shape == (adj.num_edges,):
        return
    by_head = (adj.num_edges, *x.shape[1:-1])
    if x.dim() == 2 or weight.shape != by_head:
        wanted = f"({adj.num_edges},)" if x.dim() == 2 else f"({adj.num_edges},) or {by_head}"
        raise ValueError(f"weight must be {wanted}, not {tuple(weight.shape)}")


def reference_spmm(adj: Adjacency, x: Tensor, reduce: str = "sum", weight: Tensor | None = None) -> Tensor:
    """Do `spmm` by gather and scatter, E x D messages and all."""
    if reduce == "max":
        return reference_max(adj, x.flatten(1)).view(adj.num_dst, *x.shape[1:])
    messages = x[adj.indices.long()]
    if weight is not None:
        messages = messages * weight.view(*weight.shape, *[1] * (x.dim() - weight.dim()))
    y = x.new_zeros(adj.num_dst, *x.shape[1:]).index_add(0, adj.targets(), messages)
    if reduce == "sum":
        return y
    return y / adj.degrees().clamp(min=1).view(-1, *[1] * (x.dim() - 1)).to(x.dtype)


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
    _check(adj, x, weight)
    if source_scale is not None:
        check_shape("source_scale", source_scale, adj.num_src)
    if target_scale is not None:
        check_shape("target_scale", target_scale, adj.num_dst)
    if x.dim() == 3 and (weight is None or weight.dim() == 1):  # heads are columns
        y = weighted_sum(adj, x.flatten(1), weight, source_scale, target_scale)
        return y.view(adj.num_dst, *x.shape[1:])
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
