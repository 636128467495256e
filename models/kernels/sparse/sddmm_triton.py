"""Dot products of edges' ends on GPUs: a program for each destination and head. Not yet run on a GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from models.kernels.sparse.adjacency import Adjacency
from models.kernels.sparse.spmm_max_triton import block_shape


def dot_edges_triton(
    adj: Adjacency, a: Tensor, b: Tensor, source_scale: Tensor | None = None, target_scale: Tensor | None = None
) -> Tensor:
    """Do `sddmm.dot_edges`, without gradients: float32 (E,), or with heads (E, H)."""
    heads, width = (1, a.shape[1]) if a.dim() == 2 else a.shape[1:]
    s = a.new_empty((adj.num_edges, heads)[: a.dim() - 1], dtype=torch.float32)
    if s.numel():
        _dot_rows[(adj.num_dst, heads)](
            adj.indptr, adj.indices, a.contiguous(), b.contiguous(),
            a if source_scale is None else source_scale.contiguous(),
            a if target_scale is None else target_scale.contiguous(), s,
            H=heads, D=width, BY_SOURCE=source_scale is not None, BY_TARGET=target_scale is not None,
            **block_shape(width),
        )  # fmt: skip
    return s


@triton.jit
def _dot_rows(  # type: ignore[no-untyped-def]
    indptr, indices, a, b, source_scale, target_scale, s,
    H: tl.constexpr, D: tl.constexpr, EDGES: tl.constexpr, WIDTH: tl.constexpr,
    BY_SOURCE: tl.constexpr, BY_TARGET: tl.constexpr,
):  # fmt: skip
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    begin, end = tl.load(indptr + row), tl.load(indptr + row + 1)
    for start in range(begin, end, EDGES):
        e = start + tl.arange(0, EDGES)
        u = tl.load(indices + e, mask=e < end, other=0).to(tl.int64)
        dot = tl.zeros([EDGES], tl.float32)
        for column in range(0, D, WIDTH):
            columns = column + tl.arange(0, WIDTH)
            own = tl.load(b + (row * H + head) * D + columns, mask=columns < D, other=0.0).to(tl.float32)
            there = (e < end)[:, None] & (columns < D)[None, :]
            value = tl.load(a + (u[:, None] * H + head) * D + columns[None, :], mask=there, other=0.0)
            dot += tl.sum(value.to(tl.float32) * own[None, :], 1)
        if BY_SOURCE:
            dot *= tl.load(source_scale + u, mask=e < end, other=0.0).to(tl.float32)
        if BY_TARGET:
            dot *= tl.load(target_scale + row).to(tl.float32)
        tl.store(s + e * H + head, dot, mask=e < end)
