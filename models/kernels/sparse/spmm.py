"""Sparse times dense (g-SpMM): sum source rows over each destination's in-edges; and dense times dense at the edges
(g-SDDMM). Nothing of size E x D is stored."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.backends import widen
from models.kernels.shapes import check_rows, check_shape
from models.kernels.simd.vector import ask_ahead, has_kernels, load, storage, tiles, total
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.product import factor, multiply
from models.kernels.threads import run_rows


def sddmm(adj: Adjacency, a: Tensor, b: Tensor) -> Tensor:
    """s_eh = <a_uh, b_vh> for each edge e = (u, v) and head h: a dense product, sampled at the edges.

    Args:
        adj: the edges.
        a: float32 or bfloat16 (num_src, H, D), or (num_src, D); differentiable.
        b: (num_dst, H, D) or (num_dst, D) in a's dtype; differentiable.

    Returns:
        float32 (E, H) or (E,), in the order of the edges.

    Raises:
        ValueError: shapes or dtypes that do not fit together.
    """
    check_rows("a", a, adj.num_src)
    check_shape("b", b, adj.num_dst, *a.shape[1:])
    if b.dtype != a.dtype:
        raise ValueError(f"b must be of a's {a.dtype}, not {b.dtype}")
    return _Dot.apply(a, b, adj)  # type: ignore[no-untyped-call]


def reference_sddmm(adj: Adjacency, a: Tensor, b: Tensor) -> Tensor:
    """Do `sddmm` by gathering both ends' rows."""
    return (a[adj.indices.long()] * b[adj.targets()]).sum(-1)


class _Dot(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, adj: Adjacency) -> Tensor:
        ctx.adj = adj
        ctx.save_for_backward(a, b)
        return dot_edges(adj, a, b)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (a, b), adj = ctx.saved_tensors, ctx.adj
        grad_a = grad_b = None
        if ctx.needs_input_grad[0]:
            grad_a = multiply(adj.reverse(), b, grad, adj.transpose().edges, None, None)
        if ctx.needs_input_grad[1]:
            grad_b = multiply(adj, a, grad, None, None, None)
        return grad_a, grad_b, None


def dot_edges(
    adj: Adjacency, a: Tensor, b: Tensor, source_scale: Tensor | None = None, target_scale: Tensor | None = None
) -> Tensor:
    """s_e = s_u t_v <a_u, b_v> without gradients: a (num_src, D), b (num_dst, D) -> (E,), or with heads -> (E, H).

    float32; of float64 rows float64.
    """
    if not has_kernels(a):
        s = reference_sddmm(adj, widen(a), widen(b))
        for scale, ends in ((source_scale, adj.indices.long()), (target_scale, adj.targets())):
            s = s if scale is None else s * scale[ends].view(-1, *[1] * (s.dim() - 1)).to(s.dtype)
        return s
    heads, width = (1, a.shape[1]) if a.dim() == 2 else a.shape[1:]
    s = torch.zeros((adj.num_edges, heads)[: a.dim() - 1])
    scales = factor(source_scale), factor(target_scale)
    arrays = (adj.indptr.numpy(), adj.indices.numpy(), storage(a.contiguous()), storage(b.contiguous()), *scales)
    for head in range(heads):
        for column, lanes, count in tiles(width):
            place = (lanes, count, heads * width, head * width + column, heads, head)
            run_rows(_dot_rows, adj.chunks(), *place, *arrays, storage(s))
    return s


@njit(cache=True, nogil=True)
def _dot_rows(  # type: ignore[no-untyped-def]
    low, high, lanes, count, stride, column, heads, head, indptr, indices, a, b, source_scale, target_scale, s
):
    last = indptr[high]
    for row in range(low, high):
        target_row = load(lanes, b, row * stride + column, count)
        if target_scale is not None:
            target_row = target_row * target_scale[row]
        for e in range(indptr[row], indptr[row + 1]):
            ask_ahead(lanes, a, indices, e, last, stride, column)
            u = np.int64(indices[e])
            dot = total(target_row * load(lanes, a, u * stride + column, count))
            if source_scale is not None:
                dot *= source_scale[u]
            s[e * heads + head] += dot


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
