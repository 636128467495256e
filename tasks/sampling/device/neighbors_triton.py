"""Kernels of `neighbors.DeviceSampler`: what a layer takes, and local numbers. Not yet run on a GPU.

They draw what `draws.draw_uniform` draws, and number nodes as `relabel` does, in the order of their first appearance,
whatever the order in which programs run: an appearance has a place (seeds first, then the edges hop by hop), the least
place of a node is found by atomic minima, and a scan counts the nodes that appear first at the places before.

Arrays have room for the largest batch, and `sizes` says how much of it is used: kernels run over all the room, and no
size travels to the CPU. Edges are counted from the beginning of their hop; `first_place` is the place of its edge 0.
"""

from __future__ import annotations

import triton
import triton.language as tl

from models.kernels.tables.rounding_triton import mix
from tasks.counter_random import GOLDEN
from tasks.sampling.neighborhoods import fast_random

_PLACE = tl.constexpr(0xFFFFFFFF)
"""The part of a table's item that is a place; above it stands the batch, so that later batches have lesser items."""


@triton.jit
def begin(order, number, nodes, table, numbers, sizes, HEAD: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Take the seeds: places, numbers and nodes 0, 1, ... `order` and `number`: see `DeviceSampler`."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    count, batch = tl.load(order), tl.load(number)
    exists = i < count
    v = tl.load(order + HEAD + i, mask=exists, other=0)
    tl.store(nodes + i, v.to(nodes.dtype.element_ty), mask=exists)
    tl.store(numbers + i, i, mask=exists)
    tl.store(table + v, (batch << 32) | i.to(tl.int64), mask=exists)
    if tl.program_id(0) == 0:
        tl.store(sizes, count)


@triton.jit(do_not_specialize=["hop", "fanout", "room"])
def count(  # type: ignore[no-untyped-def]
    indptr, nodes, sizes, degree, taken, hop, fanout: tl.int64, room: tl.int64,
    COUNTS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fill degree float32 (room,) and, with COUNTS, taken int64 (room,): in-degrees, and edges that the hop takes."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    exists = i < tl.load(sizes + hop)
    v = tl.load(nodes + i, mask=exists, other=0).to(tl.int64)
    low, high = tl.load(indptr + v, mask=exists, other=0), tl.load(indptr + v + 1, mask=exists, other=0)
    d = high - low
    tl.store(degree + i, d.to(tl.float32), mask=i < room)
    if COUNTS:
        tl.store(taken + i, tl.minimum(d, fanout), mask=i < room)


@triton.jit
def _floyd(d, fanout, state, ROWS: tl.constexpr, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return `fanout` different numbers below each d (ROWS,): int64 (ROWS, WIDTH); see `draws.floyd`."""
    columns = tl.arange(0, WIDTH)[None, :]
    drawn = tl.full([ROWS, WIDTH], -1, tl.int64)
    for step in range(0, fanout):
        state += STEP
        j = d - fanout + step
        t = below(state, j + 1)
        is_drawn = tl.max((drawn == t[:, None]).to(tl.int32), 1) > 0
        drawn = tl.where(columns == step, tl.where(is_drawn, j, t)[:, None], drawn)
    return drawn


@triton.jit(do_not_specialize=["hop", "fanout", "first_place"])
def draw(  # type: ignore[no-untyped-def]
    indptr, indices, nodes, order, number, sizes, bounds, ids, table, hop, fanout: tl.int64, first_place: tl.int64,
    SCANS: tl.constexpr, MARKS: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Take edges of some destinations: their sources into `ids`.

    `bounds`: the running sum of what they take. With MARKS the sources' places go into the table. With SCANS there may
    be destinations that `draws.selection` draws for.
    """
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    exists = i < tl.load(sizes + hop)
    v = tl.load(nodes + i, mask=exists, other=0).to(tl.int64)
    low = tl.load(indptr + v, mask=exists, other=0)
    d = tl.load(indptr + v + 1, mask=exists, other=0) - low
    at = tl.load(bounds + i, mask=exists, other=0)
    key, batch = tl.load(order + 1 + hop), tl.load(number)
    state = stream(key, v)
    columns = tl.arange(0, WIDTH)[None, :]
    by_scan = tl.zeros([ROWS], tl.int1)
    if SCANS:
        by_scan = (d > fanout) & (fanout * fanout > 16 * d)
    drawn = _floyd(tl.maximum(d, fanout), fanout, state, ROWS, WIDTH)
    chosen = tl.where((d > fanout)[:, None], drawn, columns.to(tl.int64))
    takes = (columns < tl.minimum(d, fanout)[:, None]) & (by_scan == 0)[:, None]
    _take(indices, ids, table, low[:, None] + chosen, at[:, None] + columns, batch, first_place, takes, MARKS)
    if SCANS:
        left, j = tl.where(by_scan, fanout, 0), 0
        while tl.max(left, 0) > 0:
            state += STEP
            takes_j = by_scan & (j < d) & (below(state, tl.maximum(d - j, 1)) < left)
            place = at + fanout - left
            _take(indices, ids, table, low + j, place, batch, first_place, takes_j, MARKS)
            left -= takes_j.to(tl.int64)
            j += 1


@triton.jit
def _take(indices, ids, table, edge, place, batch, first_place, takes, MARKS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Write edges, given by CSC positions, to places in their hop, and mark their sources."""
    u = tl.load(indices + edge, mask=takes, other=0)
    tl.store(ids + place, u, mask=takes)
    if MARKS:
        tl.atomic_min(table + u.to(tl.int64), (batch << 32) | (first_place + place), mask=takes, sem="relaxed")


@triton.jit(do_not_specialize=["first_place", "room", "rows"])
def flag(ids, bounds, table, flags, first_place: tl.int64, room: tl.int64, rows: tl.int64, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Fill flags int32 (room,): 1 where an edge's source appears for the first time; `rows`: destinations' room."""
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = e < tl.load(bounds + rows)
    u = tl.load(ids + e, mask=exists, other=0).to(tl.int64)
    place = tl.load(table + u, mask=exists, other=-1) & _PLACE
    tl.store(flags + e, (exists & (place == first_place + e)).to(tl.int32), mask=e < room)


@triton.jit(do_not_specialize=["hop", "first_place", "room", "rows", "beyond"])
def number(  # type: ignore[no-untyped-def]
    ids, bounds, table, ranks, numbers, nodes, sizes, local,
    hop, first_place: tl.int64, room: tl.int64, rows: tl.int64, beyond: tl.int64, BLOCK: tl.constexpr,
):  # fmt: skip
    """Fill local int32 (room,) with the sources' numbers, `beyond` behind the last edge, and append the new nodes.

    `ranks` int32 (room,): the running sum of `flags`.
    """
    e = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists, known = e < tl.load(bounds + rows), tl.load(sizes + hop)
    u = tl.load(ids + e, mask=exists, other=0)
    place = tl.load(table + u.to(tl.int64), mask=exists, other=0) & _PLACE
    is_new = exists & (place >= first_place)
    rank = tl.load(ranks + tl.where(is_new, place - first_place, 0), mask=is_new, other=0)
    before = tl.load(numbers + place, mask=exists & (is_new == 0), other=0)
    own = tl.where(is_new, (known + rank - 1).to(tl.int32), before)
    tl.store(local + e, tl.where(exists, own, beyond.to(tl.int32)), mask=e < room)
    is_first = is_new & (place == first_place + e)
    tl.store(numbers + first_place + e, own, mask=is_first)
    tl.store(nodes + own, u, mask=is_first)
    if tl.program_id(0) == 0:
        tl.store(sizes + hop + 1, known + tl.load(ranks + room - 1))


STEP = tl.constexpr(int(fast_random.STEP))
"""From one draw of a stream to the next: state + STEP."""
_GOLDEN = tl.constexpr(int(GOLDEN))
_SECOND_MULTIPLIER = tl.constexpr(int(fast_random.SECOND_MULTIPLIER))


@triton.jit
def stream(key, number):  # type: ignore[no-untyped-def]
    """Return the first state of stream `number` under `key`."""
    return mix(key.to(tl.uint64) + (number.to(tl.uint64) + 1) * _GOLDEN)


@triton.jit
def output(state):  # type: ignore[no-untyped-def]
    """Return 64 random bits."""
    other = state ^ _SECOND_MULTIPLIER
    return tl.umulhi(state, other) ^ (state * other)


@triton.jit
def below(state, limit):  # type: ignore[no-untyped-def]
    """Return an int64 in 0..limit-1."""
    return tl.umulhi(output(state), limit.to(tl.uint64)).to(tl.int64)
