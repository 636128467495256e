"""The loops of node2vec's walks: see `tasks.sampling.walks.random_walks`.

Many walks go on in turns, as in `walk_loops`. In a turn each draws a neighbour and a coin, and mostly without a branch
goes there or stays. Some coins decide only together with whether the node before has an edge to that neighbour. Often
its signature says that it has none: a Bloom filter of 64 bits, one for each neighbour. Else its list is searched.
"""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import njit, types

from models.kernels.simd import _llvm
from models.kernels.simd.vector import instruction, prefetch_item
from tasks.arrays import Array
from tasks.sampling.neighborhoods.fast_random import STEP, below_and_fraction, output, stream, unit
from tasks.sampling.walks.steps import another_start, first_node, weighted_edge

PATIENCE = 64
"""Refusals in a row after which node2vec's step is drawn from all edges: some p and q refuse all but one in millions.

What is drawn does not depend on it but for the numbers that it is drawn from: a refused proposal leaves no trace.
"""
_TURNS = 96
"""Walks of a thread that take turns: what one asks memory for is there when all others had theirs."""
_NONE = np.int64(-1)
_ZERO, _ONE = np.uint64(0), np.uint64(1)
_SPREAD, _TOP_BITS = np.uint64(0x9E3779B97F4A7C15), np.uint64(58)
# A walk's numbers lie together in one array of int64, so that the loops have one address to keep for all of them.
_AT, _BEFORE, _SIGNATURE, _STATE, _ROW, _PLACE, _REFUSALS, _EDGE, _COIN, _FIELDS = range(10)


def coin_limits(back: float, out: float) -> Array:
    """Return the greatest coins that take a step back, to a neighbour of the node before, and elsewhere: uint64 (3,).

    A coin is 64 random bits. The likeliest kind of step is taken with every coin; limits are as exact as float64 is,
    and 2^-64 at least.
    """
    most = max(back, 1.0, out)
    return np.array([min(max(int(x / most * 2.0**64), 1), 2**64) - 1 for x in (back, 1.0, out)], np.uint64)


def signatures(indptr: Array, indices: Array) -> Array:
    """Return a set of 64 bits for each node, with the bits of all its neighbours: uint64 (N,)."""
    words = np.empty(len(indptr) - 1, np.uint64)
    _fill_signatures(indptr, indices, words)
    return words


@njit(inline="always")
def _bit(node):  # type: ignore[no-untyped-def]
    """Return a node's place in signatures; consecutive numbers are spread evenly."""
    return (np.uint64(node) * _SPREAD) >> _TOP_BITS


@njit(cache=True, nogil=True)
def _fill_signatures(indptr, indices, words):  # type: ignore[no-untyped-def]
    for v in range(len(words)):
        bits = _ZERO
        for e in range(indptr[v], indptr[v + 1]):
            bits |= _ONE << _bit(indices[e])
        words[v] = bits


@njit(cache=True, nogil=True)
def fill_biased_walks(  # type: ignore[no-untyped-def]
    indptr, indices, weight, largest, table_first, tables, starts, start_table,
    signature, limits, back, out, key, first, tokens
):  # fmt: skip
    """Write walks of second order: `back` is 1 / p, `out` 1 / q. A walk whose step is refused falls behind."""
    count, length = tokens.shape
    active, following = min(count, _TURNS), 0
    walks = np.zeros(_TURNS * _FIELDS, np.int64)
    # Walks that a turn could not do with: first all of them, as if they had ended.
    left, num_left = np.arange(_TURNS), active
    for j in range(active):
        walks[j * _FIELDS + _PLACE] = length
    while active > 0:
        # From the last to the first: what ends for good gives its place to the last one.
        for i in range(num_left - 1, -1, -1):
            at = left[i] * _FIELDS
            if walks[at + _PLACE] < length:
                _be_patient(indptr, indices, weight, signature, back, out, walks, at, tokens)
            if walks[at + _PLACE] == length:
                if following < count:
                    node = first_node(starts, start_table, key, first + following)
                    # Two streams a walk: one of where it begins, one of its steps.
                    walks[at + _STATE] = np.int64(stream(key + 1, first + following))
                    walks[at + _ROW], walks[at + _PLACE] = following, 0
                    _begin(indptr, signature, walks, at, node, tokens)
                    following += 1
                else:
                    active -= 1
                    for field in range(_FIELDS):
                        walks[at + field] = walks[active * _FIELDS + field]
        _propose(indptr, indices, weight, largest, table_first, tables, walks, active)
        num_left = _decide(indptr, indices, starts, start_table, signature, limits, walks, active, tokens, left)
        num_left = _ask(indptr, indices, signature, out <= 1.0, walks, tokens, left, num_left)


@njit(cache=True, nogil=True)
def _begin(indptr, signature, walks, at, node, tokens):  # type: ignore[no-untyped-def]
    """Go on at a node from where there is no way back."""
    tokens[walks[at + _ROW], walks[at + _PLACE]] = ~node
    walks[at + _PLACE] += 1
    walks[at + _AT], walks[at + _BEFORE], walks[at + _SIGNATURE], walks[at + _REFUSALS] = node, _NONE, 0, 0
    prefetch_item(indptr, node)
    prefetch_item(signature, node)


@njit(cache=True, nogil=True)
def _go(indptr, signature, walks, at, node, tokens):  # type: ignore[no-untyped-def]
    v = walks[at + _AT]
    tokens[walks[at + _ROW], walks[at + _PLACE]] = node
    walks[at + _PLACE] += 1
    walks[at + _AT], walks[at + _BEFORE], walks[at + _REFUSALS] = node, v, 0
    walks[at + _SIGNATURE] = np.int64(signature[v])
    prefetch_item(indptr, node)
    prefetch_item(signature, node)


@njit(cache=True, nogil=True)
def _be_patient(indptr, indices, weight, signature, back, out, walks, at, tokens):  # type: ignore[no-untyped-def]
    """Take a step that is drawn from all edges."""
    state = np.uint64(walks[at + _STATE]) + STEP
    walks[at + _STATE] = np.int64(state)
    edge = _patient_step(indptr, indices, weight, walks[at + _AT], walks[at + _BEFORE], back, out, unit(state))
    _go(indptr, signature, walks, at, np.int64(indices[edge]), tokens)


@njit(cache=True, nogil=True)
def _patient_step(indptr, indices, weight, v, before, back, out, random):  # type: ignore[no-untyped-def]
    """Return the position of an out-edge of v, drawn from all of them; `random` in (0, 1]."""
    low, high, total = indptr[before], indptr[before + 1], 0.0
    for turn in range(2):
        bound, reached, last = random * total, 0.0, _NONE
        for edge in range(indptr[v], indptr[v + 1]):
            y = indices[edge]
            share = back if y == before else (1.0 if is_member(indices, low, high, y) else out)
            if weight is not None:
                share *= np.float64(weight[edge])
            reached += share
            if share > 0:
                last = np.int64(edge)
                if turn == 1 and reached >= bound:
                    break
        total = reached
    return last


@njit(cache=True, nogil=True)
def _propose(indptr, indices, weight, largest, table_first, tables, walks, active):  # type: ignore[no-untyped-def]
    """Draw an out-edge for each walk, -1 where there is none to take, and a coin.

    Without weights one product of the degree with 64 random bits has both: its whole part and the rest. That an edge is
    drawn with a coin of at most c has the probability that it should have but for 2^-64, so any step but for degree /
    2^64.
    """
    for at in range(0, active * _FIELDS, _FIELDS):
        v = np.uint64(walks[at + _AT])
        low = indptr[v]
        degree = indptr[v + _ONE] - low
        state, edge, coin = np.uint64(walks[at + _STATE]), _NONE, _ZERO
        if weight is None:
            if degree > 0:
                state += STEP
                item, coin = below_and_fraction(state, degree)
                edge = low + item
        elif degree > 0 and largest[v] > 0:
            edge, state = weighted_edge(v, low, degree, weight, largest, table_first, tables, state)
            state += STEP
            coin = output(state)
        walks[at + _STATE], walks[at + _EDGE], walks[at + _COIN] = np.int64(state), edge, np.int64(coin)
        prefetch_item(indices, edge)


@njit(cache=True, nogil=True)
def _decide(  # type: ignore[no-untyped-def]
    indptr, indices, starts, start_table, signature, limits, walks, active, tokens, left
):
    """Take the steps that need no search; list the walks that do, that have ended, or were refused too often."""
    length, events = tokens.shape[1], _ZERO
    back, least, span = limits[0], min(limits[1], limits[2]), max(limits[1], limits[2]) - min(limits[1], limits[2])
    for j in range(active):
        at = j * _FIELDS
        v, place = walks[at + _AT], walks[at + _PLACE]
        if walks[at + _EDGE] < 0:
            state = np.uint64(walks[at + _STATE]) + STEP
            walks[at + _STATE] = np.int64(state)
            _begin(indptr, signature, walks, at, another_start(starts, start_table, state), tokens)
            left[events] = j
            events += np.uint64(place + 1 == length)
            continue
        y, coin = np.int64(indices[np.uint64(walks[at + _EDGE])]), np.uint64(walks[at + _COIN])
        before, known = walks[at + _BEFORE], np.uint64(walks[at + _SIGNATURE])
        is_back, may_be_near = y == before, ((known >> _bit(y)) & _ONE) != _ZERO
        # The coin is above the lower limit of the two, not above the other: unsigned numbers wrap around.
        asks = may_be_near & (coin - least - _ONE < span) & (not is_back)
        takes = ((coin <= (back if is_back else limits[2])) & (not asks)) | (before < 0)
        moves = -np.int64(takes)
        refusals = (walks[at + _REFUSALS] + np.int64(not asks)) & ~moves
        # Written again where the step is not taken.
        tokens[np.uint64(walks[at + _ROW]), np.uint64(place)] = y
        place -= moves
        node = (y & moves) | (v & ~moves)
        walks[at + _REFUSALS], walks[at + _PLACE], walks[at + _AT] = refusals, place, node
        walks[at + _BEFORE] = (v & moves) | (before & ~moves)
        walks[at + _SIGNATURE] = (np.int64(signature[np.uint64(v)]) & moves) | (np.int64(known) & ~moves)
        prefetch_item(indptr, node)
        prefetch_item(signature, node)
        left[events] = j
        events += np.uint64(asks | (place == length) | (refusals == PATIENCE))
    return np.int64(events)


@njit(cache=True, nogil=True)
def _ask(indptr, indices, signature, is_near_better, walks, tokens, left, num_left):  # type: ignore[no-untyped-def]
    """Decide by search where `_decide` did not; return how many are left, those that have ended or need patience."""
    length, kept = tokens.shape[1], 0
    for j in left[:num_left]:
        low = indptr[walks[j * _FIELDS + _BEFORE]]
        for line in range(0, 48, 16):
            prefetch_item(indices, low + line)
    for j in left[:num_left]:
        at = j * _FIELDS
        if walks[at + _PLACE] < length and walks[at + _REFUSALS] < PATIENCE:
            # An edge from `before` to the node: the lists are of out-edges.
            before, y = walks[at + _BEFORE], np.int64(indices[walks[at + _EDGE]])
            if is_member(indices, indptr[before], indptr[before + 1], y) == is_near_better:
                _go(indptr, signature, walks, at, y, tokens)
            else:
                walks[at + _REFUSALS] += 1
        left[kept] = j
        kept += int(walks[at + _PLACE] == length or walks[at + _REFUSALS] == PATIENCE)
    return kept


SPAN = 32
"""Numbers that are compared at once: two registers of AVX-512, as many as most lists have."""


@instruction
def _is_in_span(typing, array, start, first, stop, number):  # type: ignore[no-untyped-def]
    """_is_in_span(array, start, first, stop, number): whether it is among array[start + first : start + stop].

    All of array[start : start + SPAN] is read.
    """

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        kind = signature.args[0]
        item = context.get_value_type(kind.dtype)
        pointer = _llvm.address(context, builder, kind, args[0], args[1])
        pointer = builder.bitcast(pointer, ir.VectorType(item, SPAN).as_pointer())
        found = builder.load(pointer, align=kind.dtype.bitwidth // 8)
        narrow = ir.IntType(32)
        places = ir.Constant(ir.VectorType(narrow, SPAN), list(range(SPAN)))
        first, stop = (_llvm.splat(builder, builder.trunc(bound, narrow), SPAN) for bound in args[2:4])
        number = args[4] if item.width == 64 else builder.trunc(args[4], item)
        hits = builder.icmp_signed("==", found, _llvm.splat(builder, number, SPAN))
        hits = builder.and_(hits, builder.icmp_signed(">=", places, first))
        hits = builder.and_(hits, builder.icmp_signed("<", places, stop))
        return _llvm.call(builder, f"llvm.vector.reduce.or.v{SPAN}i1", ir.IntType(1), [hits])

    assert isinstance(array, types.Array)
    assert isinstance(array.dtype, types.Integer)
    return types.boolean(array, types.int64, types.int64, types.int64, types.int64), generate


@njit(inline="always")
def is_member(array, low, high, number):  # type: ignore[no-untyped-def]
    """Whether `number` is among array[low:high], integers that ascend."""
    start, count = low, high - low
    while count > SPAN:
        half = count >> 1
        start += half * np.int64(array[start + half] <= number)
        count -= half
    found = False
    if len(array) >= SPAN:
        # At the array's end the span begins earlier.
        begin = min(start, len(array) - SPAN)
        found = _is_in_span(array, begin, start - begin, start + count - begin, number)
    else:
        for at in range(start, start + count):
            found |= array[at] == number
    return found
