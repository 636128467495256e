"""Softmax over each destination's in-edges."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from torch import Tensor
from torch.autograd.function import once_differentiable

from models.kernels.backends import widen
from models.kernels.shapes import check_shape
from models.kernels.simd.exponentials import exp
from models.kernels.simd.vector import Lanes, has_kernels, load, maximum, splat, storage, store, tiles, zeros
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.threads import run_rows

_NARROW = (1, 2, 4, 8)
"""Heads for which vectors just as narrow are compiled: sixteen lanes would be mostly idle."""
_LOWEST = np.float32(-3e38)


def edge_softmax(adj: Adjacency, scores: Tensor) -> Tensor:
    """p_e = exp(s_e) / sum_{e' into v} exp(s_e') for each edge e into v and each head.

    Args:
        adj: the edges.
        scores: float32 or bfloat16 (E, H), finite; differentiable.

    Returns:
        (E, H) in the scores' dtype; they sum to 1 over the in-edges of each destination that has any.

    Raises:
        ValueError: another shape.
    """
    check_shape("scores", scores, adj.num_edges, "H")
    if not has_kernels(scores):
        return reference_edge_softmax(adj, widen(scores)).to(scores.dtype)
    return _Softmax.apply(scores, adj)  # type: ignore[no-untyped-call]


def reference_edge_softmax(adj: Adjacency, scores: Tensor) -> Tensor:
    """Do `edge_softmax` by scattering. Not yet run on a GPU."""
    targets = adj.targets()
    rows = targets.unsqueeze(1).expand_as(scores)
    start = scores.new_full((adj.num_dst, scores.shape[1]), -torch.inf)
    highest = start.scatter_reduce(0, rows, scores.detach(), "amax", include_self=True)
    powers = torch.exp(scores - highest[targets])
    sums = powers.new_zeros(start.shape).index_add(0, targets, powers)
    return powers / sums[targets]


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, scores: Tensor, adj: Adjacency) -> Tensor:
        p = torch.empty(scores.shape, dtype=scores.dtype)
        _run(_softmax_rows, adj, scores.shape[1], storage(scores.contiguous()), storage(p))
        ctx.adj = adj
        ctx.save_for_backward(p)
        return p

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (p,) = ctx.saved_tensors
        grad_scores = torch.empty(p.shape, dtype=p.dtype)
        arrays = (storage(p), storage(grad.contiguous()), storage(grad_scores))
        _run(_backward_rows, ctx.adj, p.shape[1], *arrays)
        return grad_scores, None


def _run(kernel: Any, adj: Adjacency, heads: int, *arrays: Any) -> None:
    cut = [(0, Lanes(heads), heads)] if heads in _NARROW else tiles(heads)
    for column, lanes, count in cut:
        run_rows(kernel, adj.chunks(), lanes, count, heads, column, adj.indptr.numpy(), *arrays)


@njit(cache=True, nogil=True)
def _softmax_rows(low, high, lanes, count, stride, column, indptr, scores, p):  # type: ignore[no-untyped-def]
    for row in range(low, high):
        first, last = indptr[row], indptr[row + 1]
        highest, total = splat(lanes, _LOWEST), zeros(lanes)
        for e in range(first, last):
            highest = maximum(highest, load(lanes, scores, e * stride + column, count))
        for e in range(first, last):
            total = total + exp(load(lanes, scores, e * stride + column, count) - highest)
        factor = splat(lanes, np.float32(1)) / total
        for e in range(first, last):  # the exponential anew: bfloat16 has no room for its rounding
            at = e * stride + column
            store(lanes, p, at, exp(load(lanes, scores, at, count) - highest) * factor, count)


@njit(cache=True, nogil=True)
def _backward_rows(low, high, lanes, count, stride, column, indptr, p, grad, grad_scores):  # type: ignore[no-untyped-def]
    for row in range(low, high):
        first, last = indptr[row], indptr[row + 1]
        dot = zeros(lanes)
        for e in range(first, last):
            at = e * stride + column
            dot = dot + load(lanes, p, at, count) * load(lanes, grad, at, count)
        for e in range(first, last):
            at = e * stride + column
            change = load(lanes, p, at, count) * (load(lanes, grad, at, count) - dot)
            store(lanes, grad_scores, at, change, count)
