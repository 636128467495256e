"""GraphSAGE's convolution as one operation: own rows and the mean or sum of the neighbours', each through its matrix.

Put together from single operations, the own rows are a slice of x, whose gradient is written into zeros as large as x
and added to the neighbours'; here both are written where they belong.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.dense.linear import to_compute
from models.kernels.dense.products import factor, gradients_of_map, multiply_rows, new_rows
from models.kernels.dense.row_products import rows_are_stable
from models.kernels.shapes import check_shape
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.product import multiply


def convolve(
    adj: Adjacency,
    x: Tensor,
    own_weight: Tensor,
    neighbor_weight: Tensor,
    bias: Tensor | None = None,
    *,
    edge_weight: Tensor | None = None,
    target_scale: Tensor | None = None,
    pooled: Tensor | None = None,
) -> Tensor:
    """y_v = W_own x_v + W_neigh t_v sum_{e = (u, v)} w_e x_u + b.

    Args:
        adj: the edges; destinations are the first sources.
        x: (num_src, in), any floating dtype and device; differentiable. With `pooled` (num_dst, in) or more.
        own_weight: (out, in); differentiable, as are the other matrix and the bias.
        neighbor_weight: (out, in).
        bias: (out,) or None.
        edge_weight: float32 (E,), a constant; None for ones.
        target_scale: float32 (num_dst,), a constant; None for ones.
        pooled: (num_dst, in), the scaled sum where it is known already, a constant; edges and scales are then not read.

    Returns:
        (num_dst, out) in x's dtype, or in autocast's where that is on. Linear maps and sums commute: where `out` is
        narrower than `in`, rows are mapped first, unless there are many more sources than destinations.

    Raises:
        ValueError: shapes that do not fit together.
    """
    check_shape("x", x, adj.num_src if pooled is None else "n", "in")
    if len(x) < adj.num_dst:
        raise ValueError(f"x must have the {adj.num_dst} destinations' rows first, not {len(x)} rows")
    check_shape("own_weight", own_weight, "out", x.shape[1])
    check_shape("neighbor_weight", neighbor_weight, *own_weight.shape)
    if bias is not None:
        check_shape("bias", bias, len(own_weight))
    if pooled is not None:
        check_shape("pooled", pooled, adj.num_dst, x.shape[1])
        pooled = to_compute(pooled)
    elif edge_weight is not None:
        check_shape("edge_weight", edge_weight, adj.num_edges)
    if pooled is None and target_scale is not None:
        check_shape("target_scale", target_scale, adj.num_dst)
    inputs = (to_compute(x), own_weight, neighbor_weight, bias)
    return _Convolve.apply(*inputs, adj, edge_weight, target_scale, pooled)  # type: ignore[no-untyped-call]


def _maps_first(adj: Adjacency, weight: Tensor) -> bool:
    """Whether to map all sources and sum narrower rows, or to sum wider rows and map the destinations alone.

    A column of an edge costs about as much as 40 multiplications (Zen 4, November 2026). Where rows must not
    follow from their batch, widths alone decide.
    """
    out, width = weight.shape
    if rows_are_stable():
        return out < width
    return out < width and (adj.num_src - adj.num_dst) * out * width < 40 * adj.num_edges * (width - out)


def _side_by_side(left: Tensor, right: Tensor) -> Tensor | None:
    """Return the matrix (n, 2 D) whose halves these are, as loaders make them on the CPU; None if they are not.

    One product with it is a tenth faster than two with its halves.
    """
    width, stride = left.shape[1], left.stride()
    if left.shape != right.shape or stride != right.stride() or stride != (2 * width, 1):
        return None
    if right.data_ptr() != left.data_ptr() + width * left.element_size():
        return None
    return left.as_strided((len(left), 2 * width), stride)


class _Convolve(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        own_weight: Tensor,
        neighbor_weight: Tensor,
        bias: Tensor | None,
        adj: Adjacency,
        edge_weight: Tensor | None,
        target_scale: Tensor | None,
        pooled: Tensor | None,
    ) -> Tensor:
        own, neighbor = factor(own_weight, x).t(), factor(neighbor_weight, x).t()
        bias = None if bias is None else factor(bias, x)
        own_rows = x[: adj.num_dst]
        ctx.adj, ctx.edge_weight, ctx.target_scale = adj, edge_weight, target_scale
        ctx.maps_first = pooled is None and _maps_first(adj, own_weight)
        ctx.is_known = pooled is not None
        both = None if pooled is None else _side_by_side(own_rows, pooled)
        if both is not None:
            y = multiply_rows([(both, torch.cat([own, neighbor]))], new_rows(both, len(own_weight)), bias)
        elif ctx.maps_first:
            mapped = multiply_rows([(x, neighbor)], new_rows(x, len(own_weight)))
            y = multiply(adj, mapped, edge_weight, None, None, target_scale)
            multiply_rows([(own_rows, own)], y, bias, accumulate=True)
        else:
            if pooled is None:
                pooled = multiply(adj, x, edge_weight, None, None, target_scale)
            y = multiply_rows([(own_rows, own), (pooled, neighbor)], new_rows(own_rows, len(own_weight)), bias)
        ctx.save_for_backward(x, own_weight, neighbor_weight, pooled)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, own_weight, neighbor_weight, pooled = ctx.saved_tensors
        grad = grad.contiguous()
        own, neighbor = factor(own_weight, grad), factor(neighbor_weight, grad)
        num_dst = len(grad)
        grad_mapped = _to_sources(ctx, grad) if ctx.maps_first else None
        grad_x = grad_own = grad_neighbor = grad_bias = None
        if ctx.needs_input_grad[0]:
            if grad_mapped is not None:
                grad_x = multiply_rows([(grad_mapped, neighbor)], new_rows(x, x.shape[1]))
            elif ctx.is_known:
                grad_x = torch.zeros_like(x)
            else:
                grad_x = _to_sources(ctx, multiply_rows([(grad, neighbor)], new_rows(grad, x.shape[1])))
            multiply_rows([(grad, own)], grad_x[:num_dst], accumulate=True)
        both = _side_by_side(x[:num_dst], pooled) if ctx.is_known else None
        if both is not None:
            grad_both, grad_bias = gradients_of_map(grad, both, with_bias=ctx.needs_input_grad[3])
            grad_own, grad_neighbor = grad_both[:, : x.shape[1]], grad_both[:, x.shape[1] :]
        else:
            if ctx.needs_input_grad[1] or ctx.needs_input_grad[3]:
                grad_own, grad_bias = gradients_of_map(grad, x[:num_dst], with_bias=ctx.needs_input_grad[3])
            if ctx.needs_input_grad[2]:
                pair = (grad, pooled) if grad_mapped is None else (grad_mapped, x)
                grad_neighbor, _ = gradients_of_map(*pair, with_bias=False)
        grads = (None if g is None else g.to(own_weight.dtype) for g in (grad_own, grad_neighbor, grad_bias))
        return grad_x, *grads, None, None, None, None


def _to_sources(ctx: Any, grad: Tensor) -> Tensor:
    """Carry the gradient of the scaled sums back along the edges."""
    edges = None if ctx.edge_weight is None else ctx.adj.transpose().edges
    reverse = ctx.adj.reverse(ordered=ctx.edge_weight is not None)
    return multiply(reverse, grad, ctx.edge_weight, edges, ctx.target_scale, None)
