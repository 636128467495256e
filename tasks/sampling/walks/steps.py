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

from tasks.arrays import Array
from tasks.sampling.neighborhoods.fast_random import STEP, below, below_and_fraction, unit
from tasks.sampling.walks.alias import MOST_ITEMS, chosen, fill_alias

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
