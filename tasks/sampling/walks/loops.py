"""The loops of random walks of first order, and of random edges: see `tasks.sampling.walks.random_walks`.

Several walks go on in turns: while one waits for memory the others step. A loop over them does one thing, mostly
without branches: what a random number decides is foreseen wrongly every other time, and that costs more than the rest.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.vector import prefetch_item
from tasks.counter_random import permute
from tasks.sampling.neighborhoods.fast_random import STEP, below, below_and_fraction, stream, unit
from tasks.sampling.walks.alias import chosen, draw

_TURNS = 32
"""Walks of a thread that take turns."""
_NONE = np.int64(-1)


@njit(inline="always")
def _step(indptr, v, state):  # type: ignore[no-untyped-def]
    """Return the position of an out-edge of v, -1 where it has none, and the last state."""
    low = indptr[v]
    degree = indptr[v + 1] - low
    edge = _NONE
    if degree > 0:
        state += STEP
        edge = low + below(state, degree)
    return edge, state


@njit(inline="always")
def first_node(starts, table, key, number):  # type: ignore[no-untyped-def]
    """Return where walk `number` begins."""
    if table is None:
        count = len(starts)
        node = np.int64(starts[permute(key + number // count, count, number % count)])
    else:
        node = draw(table, stream(key, number))
    return node


@njit(inline="always")
def another_start(starts, table, state):  # type: ignore[no-untyped-def]
    """Return where a walk that can go no further begins anew."""
    if table is None:
        node = np.int64(starts[below(state, len(starts))])
    else:
        node = draw(table, state)
    return node


@njit(cache=True, nogil=True)
def fill_walks(  # type: ignore[no-untyped-def]
    indptr, indices, weight, largest, table_first, tables, starts, start_table, key, first, tokens
):
    """Write walks of first order. They keep step with each other: each takes one in a turn."""
    count, length = tokens.shape
    at, edge = np.empty(_TURNS, np.int64), np.empty(_TURNS, np.int64)
    state = np.empty(_TURNS, np.uint64)
    for low in range(0, count, _TURNS):
        active = min(_TURNS, count - low)
        for j in range(active):
            number = first + low + j
            at[j] = first_node(starts, start_table, key, number)
            # Two streams a walk: one of where it begins, one of its steps.
            state[j] = stream(key + 1, number)
            tokens[low + j, 0] = ~at[j]
            prefetch_item(indptr, at[j])
        for place in range(1, length):
            if weight is None:
                for j in range(active):
                    edge[j], state[j] = _step(indptr, at[j], state[j])
                    prefetch_item(indices, edge[j])
            else:
                # What `weighted_edge` does, written out: numba counts the references of arrays that are given to a
                # function with a loop in it, anew for every edge, which takes longer than all the rest.
                for j in range(active):
                    v, taken, now = at[j], _NONE, state[j]
                    edges_from = indptr[v]
                    degree = indptr[v + 1] - edges_from
                    if degree > 0 and largest[v] > 0:
                        now += STEP
                        if table_first[v] >= 0:
                            item, fraction = below_and_fraction(now, degree)
                            taken = edges_from + chosen(tables[table_first[v] + item], item, fraction)
                        else:
                            taken = edges_from + below(now, degree)
                            now += STEP
                            while unit(now) * np.float64(largest[v]) > weight[taken]:
                                now += STEP
                                taken = edges_from + below(now, degree)
                                now += STEP
                    edge[j], state[j] = taken, now
                    prefetch_item(indices, taken)
            for j in range(active):
                if edge[j] < 0:
                    state[j] += STEP
                    at[j] = another_start(starts, start_table, state[j])
                    tokens[low + j, place] = ~at[j]
                else:
                    at[j] = indices[edge[j]]
                    tokens[low + j, place] = at[j]
                prefetch_item(indptr, at[j])


@njit(cache=True, nogil=True)
def fill_edges(  # type: ignore[no-untyped-def]
    indptr, indices, weight, largest, table_first, tables, starts, start_table, key, first, sources, targets
):
    """Write random edges, each from a start drawn by its strength, which has an edge to take."""
    item = np.empty(_TURNS, np.int64)
    fraction, state = np.empty(_TURNS, np.uint64), np.empty(_TURNS, np.uint64)
    for low in range(0, len(sources), _TURNS):
        count = min(_TURNS, len(sources) - low)
        for j in range(count):
            state[j] = stream(key, first + low + j)
            item[j], fraction[j] = below_and_fraction(state[j], len(start_table))
            prefetch_item(start_table, item[j])
        for j in range(count):
            v = chosen(start_table[item[j]], item[j], fraction[j])
            sources[low + j] = v
            prefetch_item(indptr, v)
            if weight is not None:
                prefetch_item(table_first, v)
                prefetch_item(largest, v)
        for j in range(count):
            v = np.int64(sources[low + j])
            state[j] += STEP
            item[j], fraction[j] = below_and_fraction(state[j], indptr[v + 1] - indptr[v])
            if weight is None:
                item[j] += indptr[v]
                prefetch_item(indices, item[j])
            elif table_first[v] >= 0:
                prefetch_item(tables, table_first[v] + item[j])
            else:
                prefetch_item(weight, indptr[v] + item[j])
        if weight is not None:
            # Written out as in `fill_walks`.
            for j in range(count):
                v = np.int64(sources[low + j])
                edge = indptr[v] + item[j]
                if table_first[v] >= 0:
                    edge = indptr[v] + chosen(tables[table_first[v] + item[j]], item[j], fraction[j])
                else:
                    state[j] += STEP
                    while unit(state[j]) * np.float64(largest[v]) > weight[edge]:
                        state[j] += STEP
                        edge = indptr[v] + below(state[j], indptr[v + 1] - indptr[v])
                        state[j] += STEP
                item[j] = edge
                prefetch_item(indices, edge)
        for j in range(count):
            targets[low + j] = indices[item[j]]
