"""The loops of random walks: see `tasks.sampling.walks`.

Several walks go on in turns: while one waits for memory the others step. A loop over them does one thing, mostly
without branches: what a random number decides is foreseen wrongly every other time, and that costs more than the rest.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.vector import prefetch_item
from tasks.counter_random import permute
from tasks.sampling.alias import chosen, draw
from tasks.sampling.fast_random import STEP, below, below_and_fraction, stream, unit
from tasks.sampling.members import is_member
from tasks.sampling.steps import weighted_edge

PATIENCE = 64
"""Refusals in a row after which node2vec's step is drawn from all edges: some p and q refuse all but one in millions.

What is drawn does not depend on it but for the numbers that it is drawn from: a refused proposal leaves no trace.
"""
_TURNS = 32
"""Walks of a thread that take turns."""
_NONE = np.int64(-1)


@njit(inline="always")
def _step(indptr, v, weight, largest, first, tables, state):  # type: ignore[no-untyped-def]
    """Return the position of an out-edge of v, -1 where it has none to take, and the last state."""
    low = indptr[v]
    degree = indptr[v + 1] - low
    edge = _NONE
    if weight is None:
        if degree > 0:
            state += STEP
            edge = low + below(state, degree)
    elif degree > 0 and largest[v] > 0:
        edge, state = weighted_edge(v, low, degree, weight, largest, first, tables, state)
    return edge, state


@njit(inline="always")
def _first_node(starts, table, key, number):  # type: ignore[no-untyped-def]
    """Return where walk `number` begins."""
    if table is None:
        count = len(starts)
        node = np.int64(starts[permute(key + number // count, count, number % count)])
    else:
        node = draw(table, stream(key, number))
    return node


@njit(inline="always")
def _another_start(starts, table, state):  # type: ignore[no-untyped-def]
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
            at[j] = _first_node(starts, start_table, key, number)
            # Two streams a walk: one of where it begins, one of its steps.
            state[j] = stream(key + 1, number)
            tokens[low + j, 0] = ~at[j]
            prefetch_item(indptr, at[j])
        for place in range(1, length):
            for j in range(active):
                edge[j], state[j] = _step(indptr, at[j], weight, largest, table_first, tables, state[j])
                prefetch_item(indices, edge[j])
            for j in range(active):
                if edge[j] < 0:
                    state[j] += STEP
                    at[j] = _another_start(starts, start_table, state[j])
                    tokens[low + j, place] = ~at[j]
                else:
                    at[j] = indices[edge[j]]
                    tokens[low + j, place] = at[j]
                prefetch_item(indptr, at[j])


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
def fill_biased_walks(  # type: ignore[no-untyped-def]
    indptr, indices, weight, largest, table_first, tables, starts, start_table, back, out, key, first, tokens
):
    """Write walks of second order: `back` is 1 / p, `out` 1 / q. A walk whose step is refused falls behind."""
    count, length = tokens.shape
    most, surely, perhaps = max(back, 1.0, out), min(1.0, out), max(1.0, out)
    is_near_better = out <= 1.0
    active = min(count, _TURNS)
    at, edge, node = np.empty(active, np.int64), np.empty(active, np.int64), np.empty(active, np.int64)
    before, low, high = np.empty(active, np.int64), np.empty(active, np.int64), np.empty(active, np.int64)
    row, place, refusals = np.empty(active, np.int64), np.empty(active, np.int64), np.empty(active, np.int64)
    taken, asking = np.empty(active, np.int64), np.empty(active + 1, np.int64)
    state = np.empty(active, np.uint64)
    following = 0
    for j in range(active):
        row[j], place[j] = following, 0
        following += 1
    while active > 0:
        for j in range(active):
            if place[j] == 0:
                number = first + row[j]
                at[j], before[j] = _first_node(starts, start_table, key, number), _NONE
                low[j], high[j], refusals[j] = 0, 0, 0
                # Two streams a walk: one of where it begins, one of its steps.
                state[j] = stream(key + 1, number)
                tokens[row[j], 0] = ~at[j]
                place[j] = 1
            if refusals[j] == PATIENCE:
                state[j] += STEP
                random = unit(state[j])
                edge[j] = _patient_step(indptr, indices, weight, at[j], before[j], back, out, random)
            else:
                edge[j], state[j] = _step(indptr, at[j], weight, largest, table_first, tables, state[j])
            prefetch_item(indices, edge[j])
        questions = 0
        for j in range(active):
            state[j] += STEP  # of another start, too
            if edge[j] < 0:
                node[j], before[j], taken[j] = _another_start(starts, start_table, state[j]), _NONE, 1
                continue
            y = np.int64(indices[edge[j]])
            bound = unit(state[j]) * most
            is_back = y == before[j]
            is_sure = (before[j] < 0) | (refusals[j] == PATIENCE)
            is_sure |= (is_back & (bound <= back)) | ((not is_back) & (bound <= surely))
            node[j], taken[j] = y, np.int64(is_sure)
            asking[questions] = j
            questions += int((not is_sure) & (not is_back) & (bound <= perhaps))
        for k in asking[:questions]:
            # An edge from `before` to the node: the lists are of out-edges.
            is_near = is_member(indices, low[k], high[k], node[k])
            taken[k] = np.int64(is_near == is_near_better)
        j = 0
        while j < active:
            v, moves = at[j], -taken[j]
            # Written again where the step is refused.
            tokens[row[j], place[j]] = node[j] if edge[j] >= 0 else ~node[j]
            place[j] += taken[j]
            refusals[j] = (refusals[j] + 1) & ~moves
            here = v if edge[j] >= 0 else _NONE
            before[j] = (here & moves) | (before[j] & ~moves)
            low[j] = (indptr[v] & moves) | (low[j] & ~moves)
            high[j] = (indptr[v + 1] & moves) | (high[j] & ~moves)
            at[j] = (node[j] & moves) | (v & ~moves)
            prefetch_item(indptr, at[j])
            if place[j] == length:
                if following < count:
                    row[j], place[j] = following, 0
                    following += 1
                else:
                    active -= 1
                    at[j], before[j], edge[j], node[j] = at[active], before[active], edge[active], node[active]
                    low[j], high[j], refusals[j] = low[active], high[active], refusals[active]
                    row[j], place[j], state[j] = row[active], place[active], state[active]
                    taken[j] = taken[active]
                    continue
            j += 1


@njit(cache=True, nogil=True)
def fill_edges(  # type: ignore[no-untyped-def]
    indptr, indices, weight, largest, table_first, tables, starts, start_table, key, first, sources, targets
):
    """Write random edges, each from a start drawn by its strength."""
    item = np.empty(_TURNS, np.int64)
    fraction, state = np.empty(_TURNS, np.uint64), np.empty(_TURNS, np.uint64)
    for low in range(0, len(sources), _TURNS):
        count = min(_TURNS, len(sources) - low)
        for j in range(count):
            state[j] = stream(key, first + low + j)
            item[j], fraction[j] = below_and_fraction(state[j], len(start_table))
            prefetch_item(start_table, item[j])
        for j in range(count):
            item[j] = chosen(start_table[item[j]], item[j], fraction[j])
            prefetch_item(indptr, item[j])
        for j in range(count):
            v = item[j]
            sources[low + j] = v
            item[j], state[j] = _step(indptr, v, weight, largest, table_first, tables, state[j])
            prefetch_item(indices, item[j])
        for j in range(count):
            targets[low + j] = indices[item[j]]
