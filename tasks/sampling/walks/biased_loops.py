"""The loop of node2vec's walks: see `tasks.sampling.walks.random_walks`.

Many walks take turns, as in `loops.fill_walks`. In a turn each draws a neighbour and a coin, and goes there or stays.
Some coins decide only together with whether the node before has an edge to that neighbour, which is then looked for.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.sampling.neighborhoods.fast_random import STEP, below_and_fraction, output, stream, unit
from tasks.sampling.neighborhoods.lookup import find_edge
from tasks.sampling.walks.loops import another_start, first_node
from tasks.sampling.walks.steps import weighted_edge

PATIENCE = 64
"""Refusals in a row after which node2vec's step is drawn from all edges: some p and q refuse all but one in millions.

What is drawn does not depend on it but for the numbers that it is drawn from: a refused proposal leaves no trace.
"""
_TURNS = 96
"""Walks of a thread that take turns: what one asks memory for is there when all others had theirs."""
_NONE = np.int64(-1)


def coin_limits(back: float, out: float) -> Array:
    """Return the greatest coins that take a step back, to a neighbour of the node before, and elsewhere: uint64 (3,).

    A coin is 64 random bits. The likeliest kind of step is taken with every coin; limits are as exact as float64 is,
    and 2^-64 at least.
    """
    most = max(back, 1.0, out)
    return np.array([min(max(int(x / most * 2.0**64), 1), 2**64) - 1 for x in (back, 1.0, out)], np.uint64)


@njit(cache=True, nogil=True)
def _patient_step(indptr, indices, weight, v, before, back, out, random):  # type: ignore[no-untyped-def]
    """Return the position of an out-edge of v, drawn from all of them; `random` in (0, 1]."""
    total = 0.0
    for turn in range(2):
        bound, reached, last = random * total, 0.0, _NONE
        for edge in range(indptr[v], indptr[v + 1]):
            y = indices[edge]
            share = back if y == before else (1.0 if find_edge(indptr, indices, y, before) >= 0 else out)
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
def fill_biased_walks(  # type: ignore[no-untyped-def]
    indptr, indices, weight, largest, table_first, tables, starts, start_table, limits, back, out, key, first, tokens
):
    """Write walks of second order: `back` is 1 / p, `out` 1 / q. A walk whose step is refused falls behind."""
    count, length = tokens.shape
    at, before, edge = np.empty(_TURNS, np.int64), np.empty(_TURNS, np.int64), np.empty(_TURNS, np.int64)
    state, coin = np.empty(_TURNS, np.uint64), np.empty(_TURNS, np.uint64)
    row, place, refusals = np.empty(_TURNS, np.int64), np.full(_TURNS, length), np.zeros(_TURNS, np.int64)
    active, following = min(count, _TURNS), 0
    least, most = min(limits[1], limits[2]), max(limits[1], limits[2])
    while active > 0:
        for j in range(active - 1, -1, -1):  # backwards: what ends for good gives its place to the last one
            if place[j] == length:
                if following < count:
                    at[j], before[j] = first_node(starts, start_table, key, first + following), _NONE
                    # Two streams a walk: one of where it begins, one of its steps.
                    state[j] = stream(key + 1, first + following)
                    row[j], place[j], refusals[j] = following, 1, 0
                    tokens[following, 0] = ~at[j]
                    following += 1
                    prefetch_item(indptr, at[j])
                else:
                    active -= 1
                    for field in (at, before, row, place, refusals):
                        field[j] = field[active]
                    state[j] = state[active]
        for j in range(active):
            v = at[j]
            low = indptr[v]
            degree = indptr[v + 1] - low
            edge[j] = _NONE
            if refusals[j] == PATIENCE:
                state[j] += STEP
                edge[j] = _patient_step(indptr, indices, weight, v, before[j], back, out, unit(state[j]))
            elif weight is None:
                # One product of the degree with 64 random bits is both, an edge in its whole part and a coin in its
                # rest: any step has the probability that it should have but for degree / 2^64.
                if degree > 0:
                    state[j] += STEP
                    item, coin[j] = below_and_fraction(state[j], degree)
                    edge[j] = low + item
            elif degree > 0 and largest[v] > 0:
                edge[j], state[j] = weighted_edge(v, low, degree, weight, largest, table_first, tables, state[j])
                state[j] += STEP
                coin[j] = output(state[j])
            prefetch_item(indices, edge[j])
        for j in range(active):
            v = at[j]
            if edge[j] < 0:
                state[j] += STEP
                at[j], before[j], refusals[j] = another_start(starts, start_table, state[j]), _NONE, 0
                tokens[row[j], place[j]] = ~at[j]
                place[j] += 1
            else:
                y = np.int64(indices[edge[j]])
                takes = before[j] < 0 or refusals[j] == PATIENCE
                if not takes and y == before[j]:
                    takes = coin[j] <= limits[0]
                elif not takes:
                    takes = coin[j] <= least
                    if not takes and coin[j] <= most:
                        takes = (find_edge(indptr, indices, y, before[j]) >= 0) == (out <= 1.0)
                if takes:
                    tokens[row[j], place[j]] = y
                    place[j] += 1
                    at[j], before[j], refusals[j] = y, v, 0
                else:
                    refusals[j] += 1
            prefetch_item(indptr, at[j])
