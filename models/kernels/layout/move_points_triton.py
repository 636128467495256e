"""`layout.move_points` on GPUs: a program takes a block of samples at a time. Not yet run on a GPU.

Programs move points without locks (Hogwild, arXiv:1106.5730), so results differ from run to run; one program gives the
same bits always. Moves are added by atomic additions: none is lost, however many programs move a point at once.

Of a block, heads are read once, and moved when all the rest is done; tails, first negatives and so on are read, and
moved, one after the other. (The CPU's kernel reads all of a group before anything moves; `reference_move_blocks` is
this one's order.) Distances are those of the coordinates alone: what fills a row is neither read nor moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray
from torch import Tensor

from models.kernels.layout.objectives import LayoutObjective
from models.kernels.layout.reference import reference_forces
from models.kernels.tables.device_tables import DeviceTable

_BLOCK = 128
"""Samples of a program at a time: one for each of its threads. Not tuned."""
_WARP_LANES = 32
_NO_LIMIT = 2**31 - 1
"""Programs: one for each block of samples, and the device takes as many at once as it holds."""
_KINDS = {"largevis": 0, "umap": 1, "tsne": 2}
_LEAST = tl.constexpr(1e-38)
"""Squared distances below it count as it where a power is taken."""


def move_points(
    own: DeviceTable,
    others: DeviceTable,
    heads: Tensor,
    tails: Tensor,
    negatives: Tensor,
    objective: LayoutObjective,
    *,
    rate: float | Tensor,
    counts: Tensor | None = None,
    most: float = 5.0,
    move_tails: bool = True,
    move_negatives: bool = True,
    block: int = _BLOCK,
    programs: int = _NO_LIMIT,
) -> None:
    """Take one step for each sample.

    Args:
        own: points of heads, float32.
        others: points of tails and negatives: the same as `own`, or another block of them.
        heads: rows of `own`, int32 or int64 (n,); or chunks of samples (C, n).
        tails: rows of `others`, likewise.
        negatives: rows of `others` (n, K), or for each chunk (C, n, K).
        objective: gives the forces.
        rate: learning rate; or of each chunk, float32 (C,).
        counts: int64 (C,), how many samples of each chunk there are; None: n.
        most: what each number of a sample's gradient is clipped to.
        move_tails: whether tails move.
        move_negatives: likewise.
        block: samples that a program takes at a time, a power of 2.
        programs: how many work at once at most.
    """
    assert own.values.dtype == others.values.dtype == torch.float32, "points are float32: moves are added in memory"
    assert own.rule.name == "sgd", "points move by their gradients alone"
    chunks, room = (1, len(heads)) if heads.dim() == 1 else heads.shape
    if chunks * room == 0:
        return
    device, num_negatives = heads.device, negatives.shape[-1]
    counts = torch.full((chunks,), room, device=device) if counts is None else counts
    rates = rate if isinstance(rate, Tensor) else torch.full((chunks,), rate, device=device)
    num_blocks = chunks * triton.cdiv(room, block)
    _move[(min(programs, num_blocks),)](
        own.values, others.values, heads.contiguous(), tails.contiguous(), negatives.contiguous(), counts, rates,
        room, num_negatives, num_blocks, *objective.numbers.tolist(), most,
        KIND=_KINDS[objective.name], STRIDE=own.values.shape[1], DIM=own.width,
        AXES=triton.next_power_of_2(own.width), BLOCK=block,
        MOVES_TAILS=move_tails, MOVES_NEGATIVES=move_negatives,
        num_warps=max(1, block // _WARP_LANES), num_stages=1,
    )  # fmt: skip


def reference_move_blocks(
    points: NDArray[np.float64],
    pairs: NDArray[Any],
    negatives: NDArray[Any],
    objective: LayoutObjective,
    *,
    rate: float,
    block: int,
    most: float = 5.0,
) -> None:
    """Do what one program does to one table in plain float64: points (rows, dim), pairs (n, 2)."""
    for low in range(0, len(pairs), block):
        rows = np.concatenate([pairs[low : low + block], negatives[low : low + block]], 1)
        before = points[rows[:, 0]].copy()
        change = np.zeros_like(before)
        for slot in range(1, rows.shape[1]):
            gap = before - points[rows[:, slot]]
            force = reference_forces(objective, (gap**2).sum(1))[min(slot - 1, 1)]
            move = rate * np.clip(force[:, None] * gap, -most, most)
            np.add.at(points, rows[:, slot], -move)
            change += move
        np.add.at(points, rows[:, 0], change)


@triton.jit
def _power(d, exponent):  # type: ignore[no-untyped-def]
    return tl.exp(tl.log(tl.maximum(d, _LEAST)) * exponent)


@triton.jit
def _attraction(d, a, b, odds, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    if KIND == 0:
        force = -2.0 / (d + 1.0)
    elif KIND == 1:
        force = -2.0 * a * b * _power(d, b - 1.0) / (_power(d, b) * a + 1.0)
    else:
        force = -2.0 * odds / ((d + 1.0) * odds + 1.0)
    return force


@triton.jit
def _repulsion(d, gamma, epsilon, a, b, odds, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    if KIND == 0:
        force = 2.0 * gamma / ((d + epsilon) * (d + 1.0))
    elif KIND == 1:
        force = 2.0 * gamma * b / ((d + epsilon) * (_power(d, b) * a + 1.0))
    else:
        force = 2.0 / ((d + 1.0) * ((d + 1.0) * odds + 1.0))
    return force


@triton.jit(do_not_specialize=["room", "num_negatives", "num_blocks"])
def _move(  # type: ignore[no-untyped-def]
    own, others, heads, tails, negatives, counts, rates,
    room: tl.int64, num_negatives: tl.int64, num_blocks: tl.int32, gamma, epsilon, a, b, odds, most,
    KIND: tl.constexpr, STRIDE: tl.constexpr, DIM: tl.constexpr, AXES: tl.constexpr, BLOCK: tl.constexpr,
    MOVES_TAILS: tl.constexpr, MOVES_NEGATIVES: tl.constexpr,
):  # fmt: skip
    lanes, axes = tl.arange(0, BLOCK), tl.arange(0, AXES)[None, :]
    blocks_a_chunk = tl.cdiv(room, BLOCK)
    for number in range(tl.program_id(0), num_blocks, tl.num_programs(0)):
        chunk = number // blocks_a_chunk
        within = (number % blocks_a_chunk) * BLOCK + lanes
        there, rate = within < tl.load(counts + chunk), tl.load(rates + chunk)
        inside = there[:, None] & (axes < DIM)
        sample = chunk * room + within
        head = tl.load(heads + sample, mask=there, other=0).to(tl.int64)
        head_places = own + head[:, None] * STRIDE + axes
        point = tl.load(head_places, mask=inside, other=0.0, cache_modifier=".cg")

        tail = tl.load(tails + sample, mask=there, other=0).to(tl.int64)
        places = others + tail[:, None] * STRIDE + axes
        gap = point - tl.load(places, mask=inside, other=0.0, cache_modifier=".cg")
        force = _attraction(tl.sum(gap * gap, 1), a, b, odds, KIND)
        change = tl.minimum(tl.maximum(force[:, None] * gap, -most), most) * rate
        if MOVES_TAILS:
            tl.atomic_add(places, -change, mask=inside, sem="relaxed")

        for k in range(num_negatives):
            row = tl.load(negatives + sample * num_negatives + k, mask=there, other=0).to(tl.int64)
            places = others + row[:, None] * STRIDE + axes
            gap = point - tl.load(places, mask=inside, other=0.0, cache_modifier=".cg")
            force = _repulsion(tl.sum(gap * gap, 1), gamma, epsilon, a, b, odds, KIND)
            move = tl.minimum(tl.maximum(force[:, None] * gap, -most), most) * rate
            if MOVES_NEGATIVES:
                tl.atomic_add(places, -move, mask=inside, sem="relaxed")
            change += move
        tl.atomic_add(head_places, change, mask=inside, sem="relaxed")
