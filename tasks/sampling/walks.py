"""Random walks and random edges: the same draws whatever range of them is asked for, on any number of threads.

A walk depends on the key and its number alone. Several walks of a thread go on in turns: while one waits for memory the
others step. Steps of second order (node2vec, arXiv:1607.00653) are drawn by rejection, as in KnightKing (SOSP 2019,
section 4): propose a step of first order and take it with a probability in proportion to 1/p, 1 or 1/q. So memory is
the graph's own, where alias tables of all pairs of edges take a multiple of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from models.kernels.vector import prefetch_item
from tasks.arrays import Array
from tasks.counter_random import permute
from tasks.sampling.alias import alias_table, chosen, draw
from tasks.sampling.fast_random import STEP, below, below_and_fraction, stream, unit
from tasks.sampling.lookup import find_edge, frozen
from tasks.sampling.steps import WeightedSteps, weighted_edge

_TURNS = 32
"""Walks of a thread that take turns."""
_NONE = np.int64(-1)


class Walks:
    """Walks over the out-edges of a graph.

    A walk is a row of `length` nodes. A walk that comes to a node without out-edges begins anew at another start, so
    that every row is full; the first node of a walk is written as its complement ~v, a negative number.
    """

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        *,
        key: int,
        length: int,
        by_degree: bool = False,
        weight: Array | None = None,
        p: float = 1.0,
        q: float = 1.0,
    ) -> None:
        """Prepare the draws: 4 bytes a node for starts by round, 8 by degree; for weights as `WeightedSteps`.

        Args:
            indptr: int64 (N + 1,): out-edges of v are indptr[v] to indptr[v + 1].
            indices: int32 or int64 (E,): their ends, ascending within a node.
            key: of all draws.
            length: nodes of a walk, 2 at least.
            by_degree: begin at the source of a random edge, in proportion to weights; else walks number r M to
                (r + 1) M - 1 begin once at each of the M nodes with out-edges, in an order of round r's own.
            weight: float32 (E,): steps in proportion to it; None: uniform.
            p: of node2vec: a step back has weight 1 / p.
            q: a step to where the node before has no edge to has weight 1 / q.

        Raises:
            ValueError: no node has an out-edge, or weights are not fit.
        """
        self.indptr, self.indices = frozen(indptr), frozen(indices)
        self.length, self.key = length, key
        self.steps = None if weight is None else WeightedSteps.make(self.indptr, frozen(weight))
        degree = np.diff(self.indptr) if self.steps is None else self.steps.largest
        starts = np.flatnonzero(degree > 0)
        if not len(starts):
            raise ValueError("no node has an out-edge of a weight above 0: there is nowhere to walk")
        self.starts = starts.astype(self.indices.dtype)
        self.table = None
        if by_degree:
            self.table = alias_table(_strengths(self.indptr, None if self.steps is None else self.steps.weight))
        is_first_order = p == q == 1
        self.back = None if is_first_order else 1.0 / p
        self.out = None if is_first_order else 1.0 / q

    @property
    def num_bytes(self) -> int:
        """Bytes of all that draws read."""
        steps = self.steps
        weights = [] if steps is None else [steps.weight, steps.largest, steps.first, steps.tables]
        table = [] if self.table is None else [self.table]
        return sum(array.nbytes for array in (self.indptr, self.indices, self.starts, *table, *weights))

    def fill(self, first: int, tokens: Array) -> None:
        """Write walks number first, first + 1, ... into tokens (walks, length), of the dtype of `indices`.

        The kernel holds no lock: threads may fill different arrays at once.
        """
        self._call(_fill_walks, self.back, self.out, self.key, first, tokens)

    def fill_edges(self, first: int, sources: Array, targets: Array) -> None:
        """Write random edges number first, first + 1, ...: sources and targets (n,); needs `by_degree`."""
        assert self.table is not None, "random edges begin at nodes drawn by degree"
        self._call(_fill_edges, self.key, first, sources, targets)

    def _call(self, kernel: Any, *args: Any) -> None:
        steps = self.steps
        weights = (None,) * 4 if steps is None else (steps.weight, steps.largest, steps.first, steps.tables)
        kernel(self.indptr, self.indices, *weights, self.starts, self.table, *args)


def out_weights(arrays: Any, *, symmetric: bool) -> Array | None:
    """Return the weights of a graph's out-edges in their order, float32 (E,), or None where it has none."""
    weight: Array | None = arrays.get("edge_weight")
    if weight is None or symmetric:
        return weight
    return np.asarray(weight)[np.asarray(arrays["csr_eids"])]


def _strengths(indptr: Array, weight: Array | None) -> Array:
    """Return the sum of the weights of each node's out-edges: float64 (N,)."""
    if weight is None:
        return np.diff(indptr).astype(np.float64)
    sums = np.zeros(len(indptr) - 1)
    _add_weights(indptr, weight, sums)
    return sums


@njit(cache=True, nogil=True)
def _add_weights(indptr, weight, sums):  # type: ignore[no-untyped-def]
    for v in range(len(sums)):
        for e in range(indptr[v], indptr[v + 1]):
            sums[v] += weight[e]


@njit(cache=True, nogil=True)
def _step(indptr, v, weight, largest, first, tables, state):  # type: ignore[no-untyped-def]
    """Return the position of an out-edge of v, -1 where it has none to take, and the last state."""
    low = indptr[v]
    degree = indptr[v + 1] - low
    if degree == 0:
        return _NONE, state
    if weight is None:
        state += STEP
        return low + below(state, degree), state
    if largest[v] <= 0:
        return _NONE, state
    return weighted_edge(v, low, degree, weight, largest, first, tables, state)


@njit(cache=True, nogil=True)
def _first_node(starts, table, key, number):  # type: ignore[no-untyped-def]
    """Return where walk `number` begins."""
    if table is None:
        count = len(starts)
        return np.int64(starts[permute(key + number // count, count, number % count)])
    return draw(table, stream(key, number))


@njit(cache=True, nogil=True)
def _another_start(starts, table, state):  # type: ignore[no-untyped-def]
    if table is None:
        return np.int64(starts[below(state, len(starts))])
    return draw(table, state)


@njit(inline="always")
def _takes(indptr, indices, before, y, back, out, random):  # type: ignore[no-untyped-def]
    """Whether node2vec takes the proposed step to y; `random` in (0, 1]."""
    if before < 0:
        return True
    bound = random * max(back, 1.0, out)
    if y == before:
        return bound <= back
    if bound <= min(1.0, out):
        return True
    if bound > max(1.0, out):
        return False
    is_near = find_edge(indptr, indices, y, before) >= 0  # an edge from `before` to y: the lists are of out-edges
    return bound <= (1.0 if is_near else out)


@njit(cache=True, nogil=True)
def _fill_walks(  # type: ignore[no-untyped-def]
    indptr, indices, weight, largest, table_first, tables, starts, start_table, back, out, key, first, tokens
):
    count, length = tokens.shape
    active = min(count, _TURNS)
    at, before, edge = np.empty(active, np.int64), np.empty(active, np.int64), np.empty(active, np.int64)
    row, place, state = np.empty(active, np.int64), np.empty(active, np.int64), np.empty(active, np.uint64)
    following = 0
    for j in range(active):
        row[j], place[j] = following, 0
        following += 1
    while active > 0:
        for j in range(active):
            if place[j] == 0:
                number = first + row[j]
                at[j], before[j] = _first_node(starts, start_table, key, number), _NONE
                # Two streams a walk: one of where it begins, one of its steps.
                state[j] = stream(key + 1, number)
                tokens[row[j], 0] = ~at[j]
                place[j] = 1
            edge[j], state[j] = _step(indptr, at[j], weight, largest, table_first, tables, state[j])
            if edge[j] >= 0:
                prefetch_item(indices, edge[j])
        j = 0
        while j < active:
            if edge[j] < 0:
                state[j] += STEP
                at[j], before[j] = _another_start(starts, start_table, state[j]), _NONE
                tokens[row[j], place[j]] = ~at[j]
                place[j] += 1
            else:
                y = np.int64(indices[edge[j]])
                taken = True
                if back is not None:
                    state[j] += STEP
                    taken = _takes(indptr, indices, before[j], y, back, out, unit(state[j]))
                if taken:
                    before[j], at[j] = at[j], y
                    tokens[row[j], place[j]] = y
                    place[j] += 1
            prefetch_item(indptr, at[j])
            if place[j] == length:
                if following < count:
                    row[j], place[j] = following, 0
                    following += 1
                else:
                    active -= 1
                    at[j], before[j], edge[j] = at[active], before[active], edge[active]
                    row[j], place[j], state[j] = row[active], place[active], state[active]
                    continue
            j += 1


@njit(cache=True, nogil=True)
def _fill_edges(  # type: ignore[no-untyped-def]
    indptr, indices, weight, largest, table_first, tables, starts, start_table, key, first, sources, targets
):
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
