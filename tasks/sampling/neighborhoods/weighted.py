"""Weighted draws without replacement: one edge after the other, in proportion to the weights of those left.

There are two ways to draw so. Rejection: draw an in-edge uniformly and keep it with probability a / (the node's largest
weight), a its weight, unless it is taken already. Where weights are of one order that takes a few draws whatever the
degree. Arrival times: every in-edge gets a time E / a, E ~ Exp(1), and the earliest are taken (Efraimidis, Spirakis:
Weighted random sampling with a reservoir, Inf. Process. Lett. 97, 2006, algorithm A-Res, with keys on a logarithmic
scale). That takes one scan whatever the weights, and tells the chance of each edge. Edges of weight 0 are never taken.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD, NODES_AHEAD, prefetch_run
from models.kernels.simd.vector import prefetch_item
from tasks.sampling.neighborhoods.fast_random import STEP, below_and_rest, stream, unit


@njit(cache=True, nogil=True)
def largest_weights(indptr, weight, largest):  # type: ignore[no-untyped-def]
    """Fill largest float32 (N,) with each node's largest in-edge weight, 0 without edges; return whether all are fit.

    Weights are fit if they are neither negative nor infinite nor NaN.
    """
    fit = True
    for v in range(len(largest)):
        most = np.float32(0)
        for e in range(indptr[v], indptr[v + 1]):
            fit &= 0 <= weight[e] < math.inf
            most = max(most, weight[e])
        largest[v] = most
    return fit


@njit(cache=True, nogil=True)
def _sift(times, places, size):  # type: ignore[no-untyped-def]
    """Restore the heap, latest time at the root, after the root was replaced."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            return
        if child + 1 < size and times[child + 1] > times[child]:
            child += 1
        if times[child] <= times[at]:
            return
        times[at], times[child] = times[child], times[at]
        places[at], places[child] = places[child], places[at]
        at = child


@njit(cache=True, nogil=True)
def _is_taken(position, positions, first, last):  # type: ignore[no-untyped-def]
    for e in range(first, last):  # noqa: SIM110 (numba compiles no any() of a generator)
        if positions[e] == position:
            return True
    return False


@njit(cache=True, nogil=True)
def _earliest(weight, low, high, state, positions, first, last, times, places, size):  # type: ignore[no-untyped-def]
    """Fill the heap with the `size` earliest arrivals of edges low..high-1 but positions[first:last], else infinity."""
    times[:size] = math.inf
    for position in range(low, high):
        state += STEP
        u, a = unit(state), np.float64(weight[position])
        # -log u >= 1 - u: this bound rules most edges out without a logarithm.
        if a > 0 and 1.0 - u < times[0] * a:
            time = -math.log(u) / a
            if time < times[0] and not _is_taken(position, positions, first, last):
                times[0], places[0] = time, position
                _sift(times, places, size)


@njit(cache=True, nogil=True)
def _reject(weight, low, d, fanout, largest, state, positions, first):  # type: ignore[no-untyped-def]
    """Draw up to `fanout` of d edges; give up after d tries. Returns the end of what is taken, and the state."""
    w = first
    for _ in range(d):
        state += STEP
        t, rest = below_and_rest(state, d)
        if rest * largest < weight[low + t] and not _is_taken(low + t, positions, first, w):
            positions[w] = low + t
            w += 1
            if w - first == fanout:
                break
    return w, state


@njit(cache=True, nogil=True)
def draw_weighted(indptr, weight, largest, first_node, nodes, fanout, key, counts, degree, positions):  # type: ignore[no-untyped-def]
    """Take min(fanout, edges of positive weight) in-edges of each node."""
    times, places = np.empty(fanout, np.float64), np.empty(fanout, np.int64)
    w = np.int64(0)
    counts[0] = 0
    for i in range(len(nodes)):
        if i + AHEAD < len(nodes):
            prefetch_item(indptr, np.int64(nodes[i + AHEAD]) - first_node)
            prefetch_item(largest, np.int64(nodes[i + AHEAD]) - first_node)
        if i + NODES_AHEAD < len(nodes):
            at = nodes[i + NODES_AHEAD] - first_node
            prefetch_run(weight, indptr[at], indptr[at + 1])
        v = nodes[i]
        at = v - first_node
        low, high = indptr[at], indptr[at + 1]
        degree[i] = high - low
        if high - low <= fanout:
            for position in range(low, high):
                positions[w] = position
                w += np.int64(weight[position] > 0)
        elif largest[at] > 0:
            first = w
            state = stream(key, v)
            w, state = _reject(weight, low, high - low, fanout, np.float64(largest[at]), state, positions, first)
            left = first + fanout - w
            if left > 0:  # draws so far do not tell how those to come end: arrival times may go on
                _earliest(weight, low, high, state, positions, first, w, times, places, left)
                for slot in range(left):
                    if times[slot] < math.inf:
                        positions[w] = places[slot]
                        w += 1
        counts[i + 1] = w


@njit(cache=True, nogil=True)
def draw_with_chances(indptr, weight, first_node, nodes, fanout, key, counts, degree, positions, inverse):  # type: ignore[no-untyped-def]
    """Do `draw_weighted` by arrival times, and fill inverse float32 (E,) with 1 / pi (see `Sample.weight`).

    Here pi is the chance 1 - exp(-a tau) of an edge to arrive before tau, the first arrival that was not taken: given
    the others' arrivals, that is what decided (Cohen, Kaplan: Summarizing data using bottom-k sketches, PODC 2007).
    """
    times, places = np.empty(fanout + 1, np.float64), np.empty(fanout + 1, np.int64)
    w = np.int64(0)
    counts[0] = 0
    for i in range(len(nodes)):
        if i + AHEAD < len(nodes):
            prefetch_item(indptr, np.int64(nodes[i + AHEAD]) - first_node)
        if i + NODES_AHEAD < len(nodes):
            at = nodes[i + NODES_AHEAD] - first_node
            prefetch_run(weight, indptr[at], indptr[at + 1])
        at = nodes[i] - first_node
        low, high = indptr[at], indptr[at + 1]
        degree[i] = high - low
        _earliest(weight, low, high, stream(key, nodes[i]), positions, w, w, times, places, fanout + 1)
        for slot in range(1, fanout + 1):  # the root is the latest of fanout + 1: tau
            if times[slot] < math.inf:
                positions[w] = places[slot]
                inverse[w] = -1.0 / math.expm1(-times[0] * np.float64(weight[places[slot]]))
                w += 1
        counts[i + 1] = w
