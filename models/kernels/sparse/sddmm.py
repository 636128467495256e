"""Values of edges from those of their two ends (g-SDDMM): dot products and sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.backends import widen
from models.kernels.shapes import check_like, check_rows, check_shape
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
    check_like("b", b, "a", a)
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
