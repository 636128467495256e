"""Pairs of nodes that are near each other on walks, on GPUs: those of `walk_pairs`, in its order. Not yet run on a GPU.

A thread first goes along each walk and notes how many pairs each of its nodes is the centre of; sums of these say where
the pairs of a node stand, and then all are written at once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from tasks.sampling.device.random_triton import STEP, below, stream

_WALKS = 32
"""Of a program with one warp. Not tuned."""
_MOST_OFFSETS = 64
_FILLED = 1024
"""Pairs that a program writes at a time."""


def fill_pairs(
    tokens: Tensor,
    window: int,
    *,
    forward: bool,
    shrink: bool,
    key: int,
    first: int,
    centres: Tensor,
    contexts: Tensor,
) -> Tensor:
    """Do what `walk_pairs.fill_pairs` does for each of several chunks of walks.

    Args:
        tokens: contiguous (C, walks, length), as `DeviceWalks.fill` writes them.
        window: a pair's nodes are 1 to `window` steps apart.
        forward: contexts come after the centre only.
        shrink: every centre draws a window of its own.
        key: of those draws.
        first: number of the first walk of the first chunk.
        centres: contiguous (C, room), with room for `most_pairs` of every walk of a chunk.
        contexts: likewise.

    Returns the number of pairs of each chunk: int64 (C,).
    """
    chunks, walks, length = tokens.shape
    counts, before = (torch.empty((chunks, walks * length), dtype=torch.int32, device=tokens.device) for _ in range(2))
    if not counts.numel():
        return torch.zeros(chunks, dtype=torch.int64, device=tokens.device)
    _count[(triton.cdiv(chunks * walks, _WALKS),)](
        tokens, counts, before, window, key, first, chunks * walks, length,
        FORWARD=forward, SHRINK=shrink, WALKS=_WALKS, num_warps=1,
    )  # fmt: skip
    ends = counts.cumsum(1)
    offsets = min(_MOST_OFFSETS, triton.next_power_of_2(window if forward else 2 * window))
    _fill[(triton.cdiv(walks * length, _FILLED // offsets), chunks)](
        tokens, counts, before, ends, centres, contexts, walks * length, centres.shape[1],
        TOKENS=_FILLED // offsets, OFFSETS=offsets,
    )  # fmt: skip
    return ends[:, -1].clone()  # of one chunk alone, `contiguous` would be a view that keeps all of `ends`


@triton.jit(do_not_specialize=["window", "key", "first", "num_walks", "length"])
def _count(  # type: ignore[no-untyped-def]
    tokens, counts, before,
    window: tl.int64, key: tl.uint64, first: tl.int64, num_walks: tl.int64, length: tl.int64,
    FORWARD: tl.constexpr, SHRINK: tl.constexpr, WALKS: tl.constexpr,
):  # fmt: skip
    """Write of each token how many pairs it is the centre of, and how many of these have their context before it."""
    row = tl.program_id(0).to(tl.int64) * WALKS + tl.arange(0, WALKS)
    exists = row < num_walks
    begin = tl.zeros([WALKS], tl.int64)  # of the walk that the centre is on
    if FORWARD == 0:
        for i in range(0, length):
            begin = tl.where(tl.load(tokens + row * length + i, mask=exists, other=0) < 0, i, begin)
            reach = _reach(window, key, row + first, i, SHRINK)
            tl.store(before + row * length + i, tl.minimum(i - begin, reach).to(tl.int32), mask=exists)
        tl.debug_barrier()
    end = tl.zeros([WALKS], tl.int64) + length
    for number in range(0, length):
        i = length - 1 - number
        reach = _reach(window, key, row + first, i, SHRINK)
        after = tl.minimum(end - 1 - i, reach)
        if FORWARD:
            tl.store(before + row * length + i, tl.zeros([WALKS], tl.int32), mask=exists)
        else:
            after += tl.load(before + row * length + i, mask=exists, other=0)
        tl.store(counts + row * length + i, after.to(tl.int32), mask=exists)
        end = tl.where(tl.load(tokens + row * length + i, mask=exists, other=0) < 0, i, end)


@triton.jit
def _reach(window, key, number, i, SHRINK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return how far from node i of walks, by their numbers (WALKS,), contexts are looked for."""
    if SHRINK:
        reach = 1 + below(stream(key, number) + tl.cast(i + 1, tl.uint64) * STEP, window)
    else:
        reach = tl.zeros_like(number) + window
    return reach


@triton.jit(do_not_specialize=["num_tokens", "room"])
def _fill(  # type: ignore[no-untyped-def]
    tokens, counts, before, ends, centres, contexts, num_tokens: tl.int64, room: tl.int64,
    TOKENS: tl.constexpr, OFFSETS: tl.constexpr,
):  # fmt: skip
    """Write the pairs of some tokens of a chunk, the contexts of each in the order in which they stand on the walk."""
    chunk = tl.program_id(1).to(tl.int64)
    i = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    exists, at = i < num_tokens, chunk * num_tokens + i
    count = tl.load(counts + at, mask=exists, other=0)
    earlier = tl.load(before + at, mask=exists, other=0)
    place = chunk * room + tl.load(ends + at, mask=exists, other=0) - count
    centre = tl.load(tokens + at, mask=exists, other=0)
    centre = tl.where(centre < 0, -1 - centre, centre)
    for low in range(0, tl.max(count, 0), OFFSETS):
        number = low + tl.arange(0, OFFSETS)
        there = number[None, :] < count[:, None]
        step = number[None, :] - earlier[:, None]
        step = tl.where(step < 0, step, step + 1)  # from the centre to the context
        context = tl.load(tokens + at[:, None] + step, mask=there, other=0)
        context = tl.where(context < 0, -1 - context, context)
        target = place[:, None] + number[None, :]
        tl.store(contexts + target, context, mask=there)
        tl.store(centres + target, tl.zeros_like(step).to(centre.dtype) + centre[:, None], mask=there)
