"""The product of a sparse matrix with a dense one, without gradients: what sums over edges are made of."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.backends import on_triton
from models.kernels.memory import empty
from models.kernels.simd.vector import (
    FAR,
    NEAR,
    has_kernels,
    is_streamed,
    load,
    prefetch,
    prefetch_far,
    prefetch_item,
    storage,
    store,
    tiles,
    zeros,
)
from models.kernels.sparse.adjacency import Adjacency
from models.kernels.threads import run_rows


def multiply(
    adj: Adjacency,
    x: Tensor,
    weight: Tensor | None,
    edges: Tensor | None,
    source_scale: Tensor | None,
    target_scale: Tensor | None,
) -> Tensor:
    """y_v = t_v sum_{e = (u, v)} w_e s_u x_u; edge e has weight[edges[e]], or weight[e] where edges is None.

    Shapes as of `weighted_sum`.
    """
    if not has_kernels(x):
        if on_triton(x):
            from models.kernels.sparse.product_triton import multiply_triton

            return multiply_triton(adj, x, weight, edges, source_scale, target_scale)
        return multiply_torch(adj, x, weight, edges, source_scale, target_scale)
    heads = 1 if weight is None or weight.dim() == 1 else weight.shape[1]
    width = x.shape[1:].numel() // max(heads, 1)
    y = empty((adj.num_dst, *x.shape[1:]), x.dtype)
    weight = None if weight is None else weight.contiguous().view(-1)
    numbers = [factor(tensor) for tensor in (weight, source_scale, target_scale)]
    factors = (numbers[0], None if edges is None else edges.numpy(), *numbers[1:])
    arrays = (adj.indptr.numpy(), adj.indices.numpy(), storage(x.contiguous()), *factors, storage(y))
    streaming = heads == 1 and is_streamed(y)
    for head in range(heads):
        for column, lanes, count in tiles(width, streaming=streaming):
            place = (lanes, count, heads * width, head * width + column, heads, head)
            run_rows(sum_rows, adj.chunks(), *place, *arrays)
    return y


def factor(tensor: Tensor | None) -> NDArray[np.float32] | None:
    """Return numbers that rows are multiplied with, as kernels read them: float32."""
    return None if tensor is None else tensor.detach().to(torch.float32).numpy()


@njit(inline="always")
def source(indices, e):  # type: ignore[no-untyped-def]
    """Return an edge's source: the edge itself where there are no indices."""
    return np.int64(e) if indices is None else np.int64(indices[e])


@njit(cache=True, nogil=True)
def sum_rows(  # type: ignore[no-untyped-def]
    low, high, lanes, count, stride, column, heads, head,
    indptr, indices, x, weight, edges, source_scale, target_scale, y,
):  # fmt: skip
    """Sum one tile of columns; rows of edges themselves where there are no indices."""
    last = indptr[high]
    for row in range(low, high):
        acc = zeros(lanes)
        for e in range(indptr[row], indptr[row + 1]):
            if e + FAR < last:
                prefetch_far(lanes, x, source(indices, e + FAR) * stride + column)
                if edges is not None:
                    prefetch_item(weight, np.int64(edges[e + FAR]) * heads + head)
                if source_scale is not None:
                    prefetch_item(source_scale, source(indices, e + FAR))
            if e + NEAR < last:
                prefetch(lanes, x, source(indices, e + NEAR) * stride + column)
            u = source(indices, e)
            value = load(lanes, x, u * stride + column, count)
            if weight is not None:
                value = value * weight[(e if edges is None else np.int64(edges[e])) * heads + head]
            if source_scale is not None:
                value = value * source_scale[u]
            acc = acc + value
        if target_scale is not None:
            acc = acc * target_scale[row]
        store(lanes, y, row * stride + column, acc, count)


def multiply_torch(
    adj: Adjacency,
    x: Tensor,
    weight: Tensor | None,
    edges: Tensor | None,
    source_scale: Tensor | None,
    target_scale: Tensor | None,
) -> Tensor:
    """Multiply with cuSPARSE (not yet run on a GPU) or, on the CPU, MKL."""
    shape = (adj.num_dst, *x.shape[1:])
    if not x.shape[1:].numel():
        return x.new_zeros(shape)
    heads = 1 if weight is None else weight.shape[1:].numel()
    if weight is None:
        values = torch.ones(adj.num_edges, 1, dtype=x.dtype, device=x.device)
    else:
        values = (weight if edges is None else weight[edges.long()]).to(x.dtype).view(adj.num_edges, heads)
    x = x.reshape(len(x), heads, x.shape[1:].numel() // heads)
    if source_scale is not None:
        x = x * source_scale.view(-1, 1, 1).to(x.dtype)
    with torch.autocast(x.device.type, enabled=False):  # which would round rows and weights to 16 bits, and the sums
        y = torch.stack([_csr(adj, values[:, head]) @ x[:, head] for head in range(values.shape[1])], dim=1)
    return (y if target_scale is None else y * target_scale.view(-1, 1, 1).to(y.dtype)).view(shape)


def _csr(adj: Adjacency, values: Tensor) -> Tensor:
    kind = adj.indices.dtype if adj.num_edges < 1 << 31 else torch.int64
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        # torch 2.11 says so even where they are disabled explicitly.
        warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled", UserWarning)
        return torch.sparse_csr_tensor(
            adj.indptr.to(kind), adj.indices.to(kind), values, (adj.num_dst, adj.num_src), check_invariants=False
        )
