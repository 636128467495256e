"""Rows of features gathered on GPUs, and means of neighbours' rows: what `gather` returns, bit by bit.

Not yet run on a GPU. A program takes some destinations and a block of columns. Each destination's edges are added in
their order, eight rows under way at a time, so that sums are the CPU's.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from tasks.sampling.device.feature_table import FeatureTable

_AHEAD = tl.constexpr(8)
_WIDEST = 128
_ENTRIES, _MOST_ROWS = 512, 16
"""Numbers of a program: rows times columns. Not tuned. Triton 3.6 compiles no more rows of 16 columns."""


def _shape(width: int) -> dict[str, int]:
    columns = min(_WIDEST, max(16, triton.next_power_of_2(width)))
    return {"ROWS": min(_MOST_ROWS, _ENTRIES // columns), "WIDTH": columns, "num_warps": 2}


def gather_rows(table: FeatureTable, nodes: Tensor, count: Tensor, out: Tensor) -> None:
    """Write rows of `nodes` (room,) into out (room, D), float32 or bfloat16; 0 from number `count` int64 (1,) on."""
    shape, (rows, width) = _shape(out.shape[1]), out.shape
    if out.numel():
        _gather[(triton.cdiv(rows, shape["ROWS"]), triton.cdiv(width, shape["WIDTH"]))](
            *table.parts(), nodes, count, out, rows, width, out.stride(0), SPLIT=table.is_split, **shape
        )


def gather_means(table: FeatureTable, indptr: Tensor, ids: Tensor, count: Tensor, out: Tensor) -> None:
    """Write means over in-edges' sources into out (room, D), which may be columns of a wider matrix.

    Args:
        table: of the rows.
        indptr: int64 (room + 1,), the edges of each destination.
        ids: their sources.
        count: int64 (1,): destinations; further rows become 0.
        out: float32 or bfloat16; rows are rounded to its dtype before they are added up in float32.
    """
    shape, (rows, width) = _shape(out.shape[1]), out.shape
    if out.numel():
        _mean[(triton.cdiv(rows, shape["ROWS"]), triton.cdiv(width, shape["WIDTH"]))](
            *table.parts(), indptr, ids, count, out, rows, width, out.stride(0), SPLIT=table.is_split, **shape
        )


@triton.jit
def _load(hot, cold, place, v, there, columns, width, SPLIT: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return rows of nodes v (ROWS,) as float32 (ROWS, WIDTH); 0 where they are not there."""
    mask = there[:, None] & (columns < width)[None, :]
    if SPLIT:
        at = tl.load(place + v, mask=there, other=0).to(tl.int64)
        is_hot = at >= 0
        row = tl.where(is_hot, at, -1 - at)[:, None] * width + columns[None, :]
        value = tl.load(hot + row, mask=mask & is_hot[:, None], other=0.0).to(tl.float32)
        value += tl.load(cold + row, mask=mask & (is_hot == 0)[:, None], other=0.0).to(tl.float32)
    else:
        value = tl.load(hot + v[:, None] * width + columns[None, :], mask=mask, other=0.0).to(tl.float32)
    return value


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
def _gather(  # type: ignore[no-untyped-def]
    hot, cold, place, nodes, count, out, rows: tl.int64, width: tl.int64, stride: tl.int64,
    SPLIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    exists = i < tl.load(count)
    v = tl.load(nodes + i, mask=exists, other=0).to(tl.int64)
    value = _load(hot, cold, place, v, exists, columns, width, SPLIT)
    mask = (i < rows)[:, None] & (columns < width)[None, :]
    tl.store(out + i[:, None] * stride + columns[None, :], _rounded(value, out).to(out.dtype.element_ty), mask=mask)


@triton.jit
def _mean(  # type: ignore[no-untyped-def]
    hot, cold, place, indptr, ids, count, out, rows: tl.int64, width: tl.int64, stride: tl.int64,
    SPLIT: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    columns = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    exists = i < tl.load(count)
    low, high = tl.load(indptr + i, mask=exists, other=0), tl.load(indptr + i + 1, mask=exists, other=0)
    total = tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(0, tl.max(high - low, 0), _AHEAD):
        for ahead in tl.static_range(_AHEAD):
            e = low + first + ahead
            there = e < high
            u = tl.load(ids + e, mask=there, other=0).to(tl.int64)
            value = _load(hot, cold, place, u, there, columns, width, SPLIT)
            total += _rounded(value, out)
    mean = total * tl.div_rn(1.0, tl.maximum(high - low, 1).to(tl.float32))[:, None]
    mask = (i < rows)[:, None] & (columns < width)[None, :]
    tl.store(out + i[:, None] * stride + columns[None, :], _rounded(mean, out).to(out.dtype.element_ty), mask=mask)
