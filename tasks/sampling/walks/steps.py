"""One step from a node along an out-edge, in proportion to the edges' weights.

Rejection needs the weights alone: draw an out-edge uniformly and take it with probability a / (the node's largest
weight), a its weight. Where a node's weights are of one order that takes a few draws, whatever its degree. The other
nodes have alias tables, of 8 bytes for each of their edges. So a graph never takes more than alias tables do, and most
graphs take 12 bytes a node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numba import njit

from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.counter_random import permute
from tasks.sampling.neighborhoods.fast_random import STEP, below, below_and_fraction, stream, unit
from tasks.sampling.walks.alias import MOST_ITEMS, chosen, draw, fill_alias

_MOST_DRAWS = 4
"""Draws by rejection that a step may take on average; with more the node gets an alias table."""
_REJECTION = np.int64(-1)


@dataclass(frozen=True)
class WeightedSteps:
    """What steps by weight read, beside indptr and indices."""

    weight: Array
    """float32 (E,)."""
    largest: Array
    """float32 (N,): largest weight of a node's out-edges; 0: no edge to take."""
    first: Array
    """int64 (N,): where a node's alias table begins in `tables`; -1: it has none, steps are drawn by rejection."""
    tables: Array
    """uint64 (edges of nodes with an alias table,)."""

    @classmethod
    def make(cls, indptr: Array, weight: Array) -> WeightedSteps:
        """Count what each node needs; weights in the order of the edges from indptr[v] to indptr[v + 1].

        Raises ValueError: a weight is negative, infinite or NaN.
        """
        num_nodes = len(indptr) - 1
        largest, first = np.empty(num_nodes, np.float32), np.empty(num_nodes, np.int64)
        if not _largest_weights(indptr, weight, largest):
            raise ValueError("edge weights must be finite and none below 0")
        entries, most = _count_tables(indptr, weight, largest, first)
        tables = np.empty(entries, np.uint64)
        _fill_tables(indptr, weight, first, tables, np.empty(most), np.empty(most, np.int64))
        return cls(weight, largest, first, tables)


@njit(cache=True, nogil=True)
def _largest_weights(indptr, weight, largest):  # type: ignore[no-untyped-def]
    """Fill largest float32 (N,) with each node's largest weight, 0 without edges; return whether all are fit."""
    fit = True
    for v in range(len(largest)):
        most = np.float32(0)
        for e in range(indptr[v], indptr[v + 1]):
            fit &= 0 <= weight[e] < math.inf
            most = max(most, weight[e])
        largest[v] = most
    return fit


@njit(cache=True, nogil=True)
def _count_tables(indptr, weight, largest, first):  # type: ignore[no-untyped-def]
    """Fill `first`; return the edges of all nodes with a table, and of the one with the most."""
    entries, most = 0, 0
    for v in range(len(first)):
        total, degree = 0.0, indptr[v + 1] - indptr[v]
        for e in range(indptr[v], indptr[v + 1]):
            total += weight[e]
        first[v] = _REJECTION
        if total * _MOST_DRAWS < np.float64(largest[v]) * degree and degree <= MOST_ITEMS:
            first[v] = entries
            entries += degree
            most = max(most, degree)
    return entries, most


@njit(cache=True, nogil=True)
def _fill_tables(indptr, weight, first, tables, shares, order):  # type: ignore[no-untyped-def]
    for v in range(len(first)):
        if first[v] >= 0:
            low, degree = indptr[v], indptr[v + 1] - indptr[v]
            fill_alias(weight[low : low + degree], tables[first[v] : first[v] + degree], shares, order)


@njit(inline="always")
def weighted_edge(v, low, degree, weight, largest, first, tables, state):  # type: ignore[no-untyped-def]
    """Return the position of an out-edge of v, whose largest weight is above 0, and the last state.

    low, degree: the node's edges are low to low + degree.
    """
    if first[v] >= 0:
        state += STEP
        item, fraction = below_and_fraction(state, degree)
        return low + chosen(tables[first[v] + item], item, fraction), state
    most = np.float64(largest[v])
    while True:
        state += STEP
        at = low + below(state, degree)
        state += STEP
        # unit() is in (0, 1]: `<=` would take edges of weight 0 never, and `<` the heaviest not always.
        if unit(state) * most <= weight[at]:
            return at, state


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
