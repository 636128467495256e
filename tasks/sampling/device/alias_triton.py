"""Draws from alias tables on GPUs: those of `alias.draw_many`. Not yet run on a GPU."""

from __future__ import annotations

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from tasks.arrays import Array
from tasks.sampling.device.random_triton import STEP, output

_DRAWS = 512
"""Of a program."""
_TWO_TO_MINUS_64 = tl.constexpr(2.0**-64)


def table_tensor(table: Array, device: torch.device) -> Tensor:
    """Return an alias table, uint64 (n,), on a device: int64 (n,), of the same bits."""
    return torch.from_numpy(table.view(np.int64)).to(device)


def draw_many(table: Tensor, states: Tensor, out: Tensor) -> None:
    """Fill each row of out, int32 or int64 (rows, m), with items: row r from state states[r] + `STEP` on.

    Args:
        table: of `table_tensor`.
        states: int64 (rows,), the bits of `fast_random`'s states.
        out: contiguous.
    """
    rows, count = out.shape
    if out.numel():
        # CUDA takes 65,535 programs along the second axis: a launch has fewer rows, and a row may have more draws.
        _draw[(triton.cdiv(count, _DRAWS), rows)](table, len(table), states, out, count, DRAWS=_DRAWS)


@triton.jit
def below_and_rest(state, limit):  # type: ignore[no-untyped-def]
    """Return an int64 in 0..limit-1 and a float64 in [0, 1)."""
    random, limit = output(state), limit.to(tl.uint64)
    return tl.umulhi(random, limit).to(tl.int64), (random * limit).to(tl.float64) * _TWO_TO_MINUS_64


@triton.jit(do_not_specialize=["num_items", "count"])
def _draw(table, num_items: tl.int64, states, out, count: tl.int64, DRAWS: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.program_id(1)
    i = tl.program_id(0).to(tl.int64) * DRAWS + tl.arange(0, DRAWS)
    state = tl.load(states + row).to(tl.uint64, bitcast=True) + (i + 1).to(tl.uint64) * STEP
    item, rest = below_and_rest(state, num_items)
    place = tl.load(table + item, mask=i < count, other=0).to(tl.uint64, bitcast=True)
    is_own = rest * 4294967296.0 < (place >> 32).to(tl.float64)
    item = tl.where(is_own, item, (place & 0xFFFFFFFF).to(tl.int64))
    tl.store(out + row * count + i, item.to(out.dtype.element_ty), mask=i < count)
