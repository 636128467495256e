"""Means of neighbours' rows of features on GPUs: what `gather.gather_mean` returns, bit by bit. Not yet run on a GPU.

A program takes some destinations and a block of columns. Each destination's edges are added in their order, eight rows
under way at a time, so that sums are the CPU's.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

_AHEAD = tl.constexpr(8)
_WIDEST = 128
_ENTRIES, _MOST_ROWS = 512, 16
"""Numbers of a program: rows times columns. Not tuned. Triton 3.6 compiles no more rows of 16 columns."""


def gather_means(table: Tensor, indptr: Tensor, ids: Tensor, out: Tensor) -> None:
    """Write means over in-edges' sources into out (n, D), which may be columns of a wider matrix.

    Args:
        table: (N, D) float32, float16 or bfloat16.
        indptr: int64 (n + 1,), the edges of each destination.
        ids: their sources.
        out: float32 or bfloat16; rows are rounded to its dtype before they are added up in float32.
    """
    rows, width = out.shape
    columns = min(_WIDEST, max(16, triton.next_power_of_2(width)))
    rows_at_once = min(_MOST_ROWS, _ENTRIES // columns)
    if out.numel():
        _mean[(triton.cdiv(rows, rows_at_once), triton.cdiv(width, columns))](
            table, indptr, ids, out, rows, width, out.stride(0), ROWS=rows_at_once, WIDTH=columns, num_warps=2
        )


@triton.jit
def _rounded(value, out):  # type: ignore[no-untyped-def]
    """Return float32 numbers as the dtype of `out` has them, bfloat16 to the nearest, ties to even, still as float32.

    Triton's interpreter cuts them off where it casts; a cast of what is rounded already is exact everywhere.
    """
    if out.dtype.element_ty == tl.bfloat16:
        bits = value.to(tl.uint32, bitcast=True)
        bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        value = tl.where(value == value, bits.to(tl.float32, bitcast=True), value)
    return value


@triton.jit
def _mean(  # type: ignore[no-untyped-def]
    table, indptr, ids, out, rows: tl.int64, width: tl.int64, stride: tl.int64, ROWS: tl.constexpr, WIDTH: tl.constexpr
):
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    exists = i < rows
    low, high = tl.load(indptr + i, mask=exists, other=0), tl.load(indptr + i + 1, mask=exists, other=0)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(0, tl.max(high - low, 0), _AHEAD):
        for ahead in tl.static_range(_AHEAD):
            e = low + first + ahead
            there = e < high
            u = tl.load(ids + e, mask=there, other=0).to(tl.int64)
            mask = there[:, None] & (columns < width)[None, :]
            value = tl.load(table + u[:, None] * width + columns[None, :], mask=mask, other=0.0)
            total += _rounded(value.to(tl.float32), out)
    mean = total * tl.div_rn(1.0, tl.maximum(high - low, 1).to(tl.float32))[:, None]
    mask = exists[:, None] & (columns < width)[None, :]
    tl.store(out + i[:, None] * stride + columns[None, :], _rounded(mean, out).to(out.dtype.element_ty), mask=mask)
