"""The product of a sparse matrix with a dense one on GPUs: a program for each row and block of columns.

Not yet run on a GPU. Sums are float32 and no race. `product.multiply` takes it where `backends.take_triton` says so.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from models.kernels.sparse.adjacency import Adjacency


def block_shape(width: int) -> dict[str, int]:
    """Return how many edges and columns a program takes at a time, and its warps, for rows of `width` columns."""
    columns = min(128, max(16, triton.next_power_of_2(width)))
    return {"EDGES": 16, "WIDTH": columns, "num_warps": 1 if columns <= 32 else 2 if columns <= 64 else 4}


def multiply_triton(
    adj: Adjacency,
    x: Tensor,
    weight: Tensor | None,
    edges: Tensor | None,
    source_scale: Tensor | None,
    target_scale: Tensor | None,
) -> Tensor:
    """Do `product.multiply`, without gradients."""
    x, width = x.contiguous(), x.shape[1:].numel()
    y = x.new_empty(adj.num_dst, *x.shape[1:])
    heads = 1 if weight is None else weight.shape[1:].numel()
    shape = block_shape(width)
    if y.numel():
        _multiply[(adj.num_dst, triton.cdiv(width, shape["WIDTH"]))](
            adj.indptr, adj.indices, x,
            x if weight is None else weight.contiguous(), adj.indices if edges is None else edges,
            x if source_scale is None else source_scale.contiguous(),
            x if target_scale is None else target_scale.contiguous(), y, width,
            H=heads, D=width // heads, WEIGHTED=weight is not None, BY_NUMBER=edges is not None,
            BY_SOURCE=source_scale is not None, BY_TARGET=target_scale is not None, **shape,
        )  # fmt: skip
    return y


@triton.jit
def _multiply(  # type: ignore[no-untyped-def]
    indptr, indices, x, weight, edges, source_scale, target_scale, y, width,
    H: tl.constexpr, D: tl.constexpr, WEIGHTED: tl.constexpr, BY_NUMBER: tl.constexpr,
    BY_SOURCE: tl.constexpr, BY_TARGET: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    total = tl.zeros([WIDTH], tl.float32)
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        there = (e < end)[:, None] & (columns < width)[None, :]
        u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64)
        value = tl.load(x + u[:, None] * width + columns[None, :], mask=there, other=0.0).to(tl.float32)
        if WEIGHTED:
            at = e
            if BY_NUMBER:
                at = tl.load(edges + e, mask=e < end, other=0).to(tl.int64)
            head = (columns // D)[None, :]
            value *= tl.load(weight + at[:, None] * H + head, mask=there, other=0.0).to(tl.float32)
        if BY_SOURCE:
            value *= tl.load(source_scale + u, mask=e < end, other=0.0).to(tl.float32)[:, None]
        total += tl.sum(value, 0)
    if BY_TARGET:
        total *= tl.load(target_scale + row).to(tl.float32)
    tl.store(y + row * width + columns, total.to(y.dtype.element_ty), mask=columns < width)
