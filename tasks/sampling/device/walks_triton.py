"""Random walks and random edges on GPUs: the same ones as `walks.Walks` draws. Not yet run on a GPU.

Every thread goes along a walk of its own. In a turn each proposes a step, and takes it or does not; so walks whose
steps are refused, by a weight or by node2vec, fall behind the others of their program and keep it at work.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from tasks.counter_random import half_bits
from tasks.sampling.device.alias_triton import table_tensor
from tasks.sampling.device.random_triton import STEP, below, below_and_rest, chosen, draw, output, permute, stream, unit
from tasks.sampling.walks.biased_loops import PATIENCE, coin_limits
from tasks.sampling.walks.random_walks import Walks

_WALKS = 64
"""Of a program with one warp: two a thread, so that one's loads go on while the other waits. Not tuned."""


class DeviceWalks:
    """What `Walks` reads, on a device."""

    def __init__(self, walks: Walks, device: torch.device) -> None:
        """Copy the graph and the tables; 4 or 8 bytes an edge and 8 a node for the graph."""
        self.length, self.key = walks.length, walks.key

        def put(array: Any) -> Tensor:
            # Arrays are read-only, which torch warns of; nothing writes to these.
            return torch.tensor(array, device=device)

        self.indptr, self.indices, self.starts = put(walks.indptr), put(walks.indices), put(walks.starts)
        nothing = self.starts  # stands for what is not read
        steps = walks.steps
        self._weights = [nothing] * 4
        if steps is not None:
            tables = table_tensor(steps.tables, device)
            self._weights = [put(steps.weight), put(steps.largest), put(steps.first), tables]
        self._start_table = nothing if walks.table is None else table_tensor(walks.table, device)
        back, out = (1.0, 1.0) if walks.back is None or walks.out is None else (walks.back, walks.out)
        # Numbers that a kernel is called with are rounded to float32; these must not be.
        self._chances = torch.tensor([back, out], dtype=torch.float64, device=device)
        self._limits = torch.from_numpy(coin_limits(back, out).view(np.int64)).to(device)
        self._kinds = {
            "WEIGHTED": steps is not None,
            "BY_DEGREE": walks.table is not None,
            "SECOND_ORDER": walks.back is not None,
        }

    def fill(self, first: int, tokens: Tensor) -> None:
        """Write walks number first, first + 1, ... into tokens, contiguous (walks, length)."""
        if len(tokens):
            _fill_walks[(triton.cdiv(len(tokens), _WALKS),)](
                self.indptr, self.indices, *self._weights, self.starts, self._start_table, self._chances,
                self._limits, tokens,
                self.key, first, len(tokens), self.length, *self._sizes(), **self._kinds,
                PATIENCE=PATIENCE, WALKS=_WALKS, num_warps=1,
            )  # fmt: skip

    def fill_edges(self, first: int, sources: Tensor, targets: Tensor) -> None:
        """Write random edges number first, first + 1, ...: sources and targets (n,); needs `by_degree`."""
        assert self._kinds["BY_DEGREE"], "random edges begin at nodes drawn by degree"
        if len(sources):
            _fill_edges[(triton.cdiv(len(sources), _WALKS),)](
                self.indptr, self.indices, *self._weights, self._start_table, sources, targets,
                self.key, first, len(sources), len(self._start_table), self._kinds["WEIGHTED"], WALKS=_WALKS,
                num_warps=1,
            )  # fmt: skip

    def _sizes(self) -> tuple[int, int, int]:
        """Return the numbers of nodes to start at and of the table's items, and half of the first one's bits."""
        return len(self.starts), len(self._start_table), int(half_bits(len(self.starts)))


@triton.jit
def _propose(  # type: ignore[no-untyped-def]
    indptr, weight, largest, table_first, tables, v, live, state, WEIGHTED: tl.constexpr
):
    """Propose an out-edge of each v.

    Returns the edge's position; whether it is to be taken; whether v has any edge to take; the last state; and, where
    there are no weights, node2vec's coin. An edge that is not taken was refused by its weight: ask again from there.
    """
    low = tl.load(indptr + v, mask=live, other=0)
    degree = tl.load(indptr + v + 1, mask=live, other=0) - low
    state_1 = state + STEP
    if WEIGHTED:
        most = tl.load(largest + v, mask=live, other=0.0)
        has_edges = live & (degree > 0) & (most > 0)
        first = tl.load(table_first + v, mask=has_edges, other=-1)
        by_table = has_edges & (first >= 0)
        item, rest = below_and_rest(state_1, degree)
        place = tl.load(tables + first + item, mask=by_table, other=0)
        state_2 = state_1 + STEP
        own = tl.load(weight + low + item, mask=has_edges, other=0.0).to(tl.float64)
        takes = by_table | (has_edges & (unit(state_2) * most.to(tl.float64) <= own))
        edge = low + tl.where(by_table, chosen(place, item, rest), item)
        state = tl.where(has_edges, tl.where(by_table, state_1, state_2), state)
    else:
        has_edges = live & (degree > 0)
        takes = has_edges
        edge = low + below(state_1, degree)
        state = tl.where(has_edges, state_1, state)
    coin = output(state_1) * degree.to(tl.uint64)
    return edge, takes, has_edges, state, coin


@triton.jit
def _has_edge(indptr, indices, source, target, asked):  # type: ignore[no-untyped-def]
    """Whether `target` is among the neighbours of `source`, where that is asked."""
    low = tl.load(indptr + source, mask=asked, other=0)
    stop = tl.load(indptr + source + 1, mask=asked, other=0)
    high = stop
    while tl.max((low < high).to(tl.int32), 0) > 0:
        is_open = low < high
        middle = (low + high) >> 1
        is_less = is_open & (tl.load(indices + middle, mask=is_open, other=0) < target)
        low = tl.where(is_less, middle + 1, low)
        high = tl.where(is_open & (is_less == 0), middle, high)
    is_within = asked & (low < stop)
    return is_within & (tl.load(indices + low, mask=is_within, other=-1) == target)


@triton.jit
def _takes(indptr, indices, limits, before, y, proposed, coin):  # type: ignore[no-untyped-def]
    """Whether node2vec takes the proposed step to y with that coin: see `biased_loops`."""
    back = tl.load(limits).to(tl.uint64, bitcast=True)
    near = tl.load(limits + 1).to(tl.uint64, bitcast=True)
    out = tl.load(limits + 2).to(tl.uint64, bitcast=True)
    is_other = proposed & (before >= 0) & (y != before)
    is_near = _has_edge(indptr, indices, before, y, is_other & ((coin <= near) != (coin <= out)))
    other_takes = coin <= tl.where(is_near, near, out)
    return proposed & ((before < 0) | tl.where(y == before, coin <= back, other_takes))


@triton.jit
def _patient_step(  # type: ignore[no-untyped-def]
    indptr, indices, weight, chances, v, before, random, asked, WEIGHTED: tl.constexpr
):
    """Return the position of an out-edge of v, drawn from all of them: see `biased_loops`."""
    back, out = tl.load(chances), tl.load(chances + 1)
    low = tl.load(indptr + v, mask=asked, other=0)
    high = tl.load(indptr + v + 1, mask=asked, other=0)
    found, reached = tl.full(v.shape, -1, tl.int64), tl.zeros(v.shape, tl.float64)
    bound = reached
    for turn in range(2):
        bound, reached = random * reached, tl.zeros(v.shape, tl.float64)
        edge, is_open = low, asked
        while tl.max((is_open & (edge < high)).to(tl.int32), 0) > 0:
            reads = is_open & (edge < high)
            y = tl.load(indices + edge, mask=reads, other=0).to(tl.int64)
            is_near = _has_edge(indptr, indices, before, y, reads & (y != before))
            share = tl.where(y == before, back, tl.where(is_near, 1.0, out))
            if WEIGHTED:
                share *= tl.load(weight + edge, mask=reads, other=0.0).to(tl.float64)
            reached += tl.where(reads, share, 0.0)
            found = tl.where(reads & (share > 0), edge, found)
            is_open = is_open & ((turn == 0) | (share <= 0) | (reached < bound))
            edge += 1
    return found


@triton.jit(do_not_specialize=["key", "first", "count", "length", "num_starts", "num_items", "half"])
def _fill_walks(  # type: ignore[no-untyped-def]
    indptr, indices, weight, largest, table_first, tables, starts, start_table, chances, limits,
    tokens, key: tl.uint64, first: tl.int64, count: tl.int64, length: tl.int64,
    num_starts: tl.int64, num_items: tl.int64, half: tl.int32,
    WEIGHTED: tl.constexpr, BY_DEGREE: tl.constexpr, SECOND_ORDER: tl.constexpr, PATIENCE: tl.constexpr,
    WALKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * WALKS + tl.arange(0, WALKS)
    exists, number = row < count, row + first
    if BY_DEGREE:
        at = draw(start_table, num_items, stream(key, number), exists)
    else:
        turn = permute(key.to(tl.uint64) + (number // num_starts).to(tl.uint64), num_starts, half, number % num_starts)
        at = tl.load(starts + turn, mask=exists, other=0).to(tl.int64)
    state = stream(key + 1, number)
    tl.store(tokens + row * length, (-1 - at).to(tokens.dtype.element_ty), mask=exists)
    before, refusals = tl.full([WALKS], -1, tl.int64), tl.zeros([WALKS], tl.int32)
    place = tl.where(exists, 1, length)
    while tl.min(place, 0) < length:
        live = place < length
        is_patient = live & (refusals == PATIENCE)
        edge, takes, has_edges, state, coin = _propose(
            indptr, weight, largest, table_first, tables, at, live & (is_patient == 0), state, WEIGHTED
        )
        proposed = takes
        if SECOND_ORDER:
            if WEIGHTED:
                state = tl.where(proposed, state + STEP, state)
                coin = output(state)
            if tl.max(is_patient.to(tl.int32), 0) > 0:
                state = tl.where(is_patient, state + STEP, state)
                drawn = _patient_step(indptr, indices, weight, chances, at, before, unit(state), is_patient, WEIGHTED)
                edge = tl.where(is_patient, drawn, edge)
                takes, has_edges = takes | is_patient, has_edges | is_patient
        node = tl.load(indices + edge, mask=takes, other=0).to(tl.int64)
        if SECOND_ORDER:
            takes = is_patient | _takes(indptr, indices, limits, before, node, proposed, coin)
            refusals = tl.where(takes, 0, refusals + (proposed & (takes == 0)).to(tl.int32))
        token = node
        begins = live & (has_edges == 0)
        if tl.max(begins.to(tl.int32), 0) > 0:
            state = tl.where(begins, state + STEP, state)
            if BY_DEGREE:
                start = draw(start_table, num_items, state, begins)
            else:
                start = tl.load(starts + below(state, num_starts), mask=begins, other=0).to(tl.int64)
            node, token = tl.where(begins, start, node), tl.where(begins, -1 - start, node)
        moves = takes | begins
        before = tl.where(begins, -1, tl.where(takes, at, before))
        at = tl.where(moves, node, at)
        tl.store(tokens + row * length + place, token.to(tokens.dtype.element_ty), mask=moves)
        place += moves.to(tl.int64)


@triton.jit(do_not_specialize=["key", "first", "count", "num_items"])
def _fill_edges(  # type: ignore[no-untyped-def]
    indptr, indices, weight, largest, table_first, tables, start_table, sources, targets,
    key: tl.uint64, first: tl.int64, count: tl.int64, num_items: tl.int64,
    WEIGHTED: tl.constexpr, WALKS: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0).to(tl.int64) * WALKS + tl.arange(0, WALKS)
    exists = i < count
    state = stream(key, i + first)
    source = draw(start_table, num_items, state, exists)
    edge, takes, has_edges, state, _ = _propose(
        indptr, weight, largest, table_first, tables, source, exists, state, WEIGHTED
    )
    if WEIGHTED:
        while tl.max((has_edges & (takes == 0)).to(tl.int32), 0) > 0:
            asked = has_edges & (takes == 0)
            another, now, _, after, _ = _propose(
                indptr, weight, largest, table_first, tables, source, asked, state, WEIGHTED
            )
            edge, state = tl.where(now, another, edge), tl.where(asked, after, state)
            takes = takes | now
    target = tl.load(indices + edge, mask=takes, other=0)
    tl.store(sources + i, source.to(sources.dtype.element_ty), mask=exists)
    tl.store(targets + i, target.to(targets.dtype.element_ty), mask=exists)
