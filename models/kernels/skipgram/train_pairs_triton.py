"""`skipgram.train_pairs` on GPUs: programs walk over ranges of pairs, one pair after another. Not yet run on a GPU.

Programs change rows without locks (Hogwild, arXiv:1106.5730), so results differ from run to run; one program gives the
same bits always. Steps are added to float32 rows by atomic additions: none is lost, however many programs move a row
at once. Rows of bfloat16 are written: of two programs that move a row at once, one's step is lost; so fewer programs
work at once on small tables. A program sees its own steps in their order.

Pairs that share negatives read the negatives' rows where their group begins and move them where it ends, by the sum of
what each pair asks for; a pair's own two rows move at once. So all slopes of a pair are taken before any of its steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from models.kernels.tables.device_tables import DeviceTable
from models.kernels.tables.rounding_triton import mix, put

_PART_PAIRS = 256
"""Pairs that a program takes one after another, before it looks for others. Not tuned."""
_WARP_NUMBERS = 1024
_NO_LIMIT = 2**31 - 1
"""Programs: one for each part of the pairs, and the device takes as many at once as it holds."""
_ROWS_A_PROGRAM = 16
"""Rows of a table for each row that programs which write rows hold at a time; with fewer, too many steps are lost.

BlogCatalog (10,312 nodes, 20 M pairs, width 64, 5 negatives), steps of all programs simulated in lockstep on a CPU
(2026-11): micro-F1 at half of the labels .288 with one program, .285 with 107 (16 rows for each that is held), .271
with 430, .194 with 4,224. Where steps are added: .287 with one, .285 with 107, .290 with 4,224, .291 with 8,448.
"""


@dataclass(frozen=True)
class Concurrency:
    """How programs share tables."""

    programs: int
    """How many work at once at most."""
    adds: bool
    """Add steps to rows in memory (float32 only); else write the sum of what was read and the step."""

    @classmethod
    def of(cls, context: DeviceTable, num_negatives: int) -> Concurrency:
        """Return what suits a table of contexts: no limit where no step is lost, else as many as its rows bear."""
        adds = context.values.dtype == torch.float32
        if adds:
            return cls(_NO_LIMIT, adds)
        return cls(max(1, len(context.values) // (_ROWS_A_PROGRAM * (num_negatives + 1))), adds)


@dataclass(frozen=True)
class _Pairs:
    """Pairs in chunks, each with room for as many, and what they are trained by."""

    centres: Tensor
    """(chunks, room)."""
    contexts: Tensor
    negatives: Tensor
    """(chunks, groups, K)."""
    counts: Tensor
    """int64 (chunks,)."""
    rates: Tensor
    """float32 (chunks,)."""
    group: int

    @property
    def part(self) -> int:
        """Pairs of a part of a chunk: whole groups."""
        return triton.cdiv(_PART_PAIRS, self.group) * self.group

    @property
    def num_parts(self) -> int:
        """Parts of all chunks."""
        return len(self.centres) * triton.cdiv(self.centres.shape[1], self.part)

    def arguments(self) -> tuple[Any, ...]:
        """Return what the kernel reads."""
        sizes = self.centres.shape[1], self.negatives.shape[1], self.negatives.shape[2], self.num_parts
        return self.centres, self.contexts, self.negatives, self.counts, self.rates, *sizes


def train_pairs(
    vertex: DeviceTable,
    context: DeviceTable,
    centres: Tensor,
    contexts: Tensor,
    negatives: Tensor,
    *,
    rate: float | Tensor,
    counts: Tensor | None = None,
    group: int = 1,
    negative_weight: float = 1.0,
    noise: int = 1,
    concurrency: Concurrency | None = None,
) -> None:
    """Take one step for each pair.

    Args:
        vertex: rows of centres.
        context: rows of contexts; the same table for proximity of first order.
        centres: rows of `vertex`, int32 or int64 (n,); or chunks of pairs (C, n).
        contexts: rows of `context`, likewise.
        negatives: rows of `context` (n / group rounded up, K), or for each chunk (C, n / group rounded up, K).
        rate: learning rate; or of each chunk, float32 (C,).
        counts: int64 (C,), how many pairs of each chunk there are; None: n.
        group: pairs that share negatives.
        negative_weight: what a negative counts.
        noise: seed of the rounding of bfloat16 tables, 0 to 2^63 - 1; another one for every call.
        concurrency: how programs share the tables; None: `Concurrency.of`.
    """
    chunks, room = (1, len(centres)) if centres.dim() == 1 else centres.shape
    if chunks * room == 0:
        return
    num_negatives, device = negatives.shape[-1], centres.device
    concurrency = concurrency or Concurrency.of(context, num_negatives)
    assert not concurrency.adds or context.values.dtype == torch.float32, "no rounding by chance in additions"
    pairs = _Pairs(
        centres.contiguous().view(chunks, room),
        contexts.contiguous().view(chunks, room),
        negatives.contiguous().view(chunks, triton.cdiv(room, group), num_negatives),
        torch.full((chunks,), room, device=device) if counts is None else counts,
        rate if isinstance(rate, Tensor) else torch.full((chunks,), rate, device=device),
        group,
    )
    stride, slots = vertex.values.shape[1], triton.next_power_of_2(max(1, num_negatives))
    columns = max(16, int(triton.next_power_of_2(stride)))
    programs = min(concurrency.programs, pairs.num_parts)
    _walk_groups[(programs,)](
        vertex.values, context.values, *pairs.arguments(), negative_weight, noise,
        PART=pairs.part, GROUP=group, STRIDE=stride, WIDTH=columns, SLOTS=slots,
        SHARED=vertex.values.data_ptr() == context.values.data_ptr(),
        ADDS=concurrency.adds, BY_CHANCE=vertex.values.dtype == torch.bfloat16,
        num_warps=_warps((slots + 4) * columns), num_stages=1,
    )  # fmt: skip


def _warps(numbers: int) -> int:
    """Return how many warps share so many numbers: a power of 2."""
    return 1 << min(5, max(1, numbers // _WARP_NUMBERS).bit_length() - 1)


@triton.jit
def _change(places, before, step, mask, noise, columns, ADDS: tl.constexpr, BY_CHANCE: tl.constexpr):  # type: ignore[no-untyped-def]
    """Add a step to numbers in memory, or write the sum of what they were and the step."""
    if ADDS:
        tl.atomic_add(places, step, mask=mask, sem="relaxed")
    else:
        put(places, before + step, mask, noise, columns, BY_CHANCE)


@triton.jit
def _take_step(  # type: ignore[no-untyped-def]
    vertex, context, centres, contexts, i, others, copies, rate, weight, noise, columns, inside,
    STRIDE: tl.constexpr, SLOTS: tl.constexpr, SHARED: tl.constexpr, ADDS: tl.constexpr, BY_CHANCE: tl.constexpr,
):  # fmt: skip
    """Move the two rows of pair i.

    Args, of a group's negatives: others float32 (SLOTS, WIDTH), their rows; copies float32 (SLOTS,), how often each
    counts. Returns the two rows' numbers, the centre as it was (WIDTH,) and the negatives' slopes (SLOTS,).
    """
    u, v = tl.load(centres + i).to(tl.int64), tl.load(contexts + i).to(tl.int64)
    centre_places, row_places = vertex + u * STRIDE + columns, context + v * STRIDE + columns
    centre = tl.load(centre_places, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    row = tl.load(row_places, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    slope = rate * (1 - tl.sigmoid(tl.sum(centre * row, 0)))
    slopes = -rate * weight * copies * tl.sigmoid(tl.sum(others * centre[None, :], 1))
    change = row * slope + tl.sum(others * slopes[:, None], 0)
    state, before = noise + (i * (SLOTS + 2)).to(tl.uint64), centre
    _change(row_places, row, centre * slope, inside, mix(state), columns, ADDS, BY_CHANCE)
    if SHARED and not ADDS:
        before += tl.where(u == v, slope, 0.0) * centre  # the row has just moved as a context
        tl.debug_barrier()
    _change(centre_places, before, change, inside, mix(state + 1), columns, ADDS, BY_CHANCE)
    tl.debug_barrier()
    return u, v, centre, slopes


@triton.jit(do_not_specialize=["room", "groups", "num_negatives", "num_parts", "noise"])
def _walk_groups(  # type: ignore[no-untyped-def]
    vertex, context, centres, contexts, negatives, counts, rates,
    room: tl.int64, groups: tl.int64, num_negatives: tl.int64, num_parts: tl.int32, weight, noise: tl.uint64,
    PART: tl.constexpr, GROUP: tl.constexpr, STRIDE: tl.constexpr, WIDTH: tl.constexpr, SLOTS: tl.constexpr,
    SHARED: tl.constexpr, ADDS: tl.constexpr, BY_CHANCE: tl.constexpr,
):  # fmt: skip
    columns, slots = tl.arange(0, WIDTH), tl.arange(0, SLOTS)
    inside, drawn = columns < STRIDE, slots < num_negatives
    parts_a_chunk, noise = tl.cdiv(room, PART), noise.to(tl.uint64)
    for part in range(tl.program_id(0), num_parts, tl.num_programs(0)):
        chunk = part // parts_a_chunk
        begin = (part % parts_a_chunk) * PART
        end = tl.minimum(begin + PART, tl.load(counts + chunk))
        rate = tl.load(rates + chunk)
        for low in range(begin, end, GROUP):
            n = tl.load(negatives + (chunk * groups + low // GROUP) * num_negatives + slots, mask=drawn, other=-1)
            n = n.to(tl.int64)
            copies, counted = _merge(n, slots, drawn, ADDS)
            there = counted[:, None] & inside[None, :]
            places = context + n[:, None] * STRIDE + columns[None, :]
            others = tl.load(places, mask=there, other=0.0, cache_modifier=".cg").to(tl.float32)
            first = chunk * room + low
            u, v, centre, slopes = _take_step(
                vertex, context, centres, contexts, first, others, copies, rate, weight, noise, columns, inside,
                STRIDE, SLOTS, SHARED, ADDS, BY_CHANCE,
            )  # fmt: skip
            moved = centre[None, :] * slopes[:, None]
            if GROUP > 1:
                for number in range(1, tl.minimum(GROUP, end - low)):
                    u, v, centre, slopes = _take_step(
                        vertex, context, centres, contexts, first + number, others, copies, rate, weight, noise,
                        columns, inside, STRIDE, SLOTS, SHARED, ADDS, BY_CHANCE,
                    )  # fmt: skip
                    moved += centre[None, :] * slopes[:, None]
            if not ADDS:
                is_stale = GROUP > 1
                if GROUP == 1:  # the pair's own rows have just moved
                    is_stale = tl.max(((n == v) | ((n == u) & SHARED)).to(tl.int32), 0) > 0
                if is_stale:
                    others = tl.load(places, mask=there, other=0.0, cache_modifier=".cg").to(tl.float32)
            random = mix(noise + (first * (SLOTS + 2) + 2 + slots).to(tl.uint64))
            _change(places, others, moved, there, random[:, None], columns[None, :], ADDS, BY_CHANCE)
            tl.debug_barrier()


@triton.jit
def _merge(n, slots, drawn, ADDS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return how often each negative counts, float32 (SLOTS,), and which of them are read and moved.

    Where rows are written and not added to, a row that was drawn twice has its first place stand for both.
    """
    if ADDS:
        counted = drawn
        copies = drawn.to(tl.float32)
    else:
        same = (n[:, None] == n[None, :]).to(tl.int32)
        counted = drawn & (tl.sum(same * (slots[None, :] < slots[:, None]).to(tl.int32), 1) == 0)
        copies = tl.where(counted, tl.sum(same, 1), 0).to(tl.float32)
    return copies, counted
