"""Weighted draws without replacement: a neighbour's chance grows with its edge's weight.

Every in-edge gets an exponential arrival time E / a, E ~ Exp(1), a its weight; the `fanout` earliest are taken
(Efraimidis, Spirakis: Weighted random sampling with a reservoir, Inf. Process. Lett. 97, 2006, algorithm A-Res, with
keys on a logarithmic scale). That is drawing one edge after the other in proportion to the weights of those left. Edges
of weight 0 are never taken.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit

from models.kernels.prefetch import AHEAD, prefetch
from tasks.train.loaders.fast_random import STEP, stream, unit


@njit(cache=True, nogil=True)
def has_bad_weight(weight):  # type: ignore[no-untyped-def]
    """Whether any weight is negative, infinite or NaN."""
    bad = False
    for e in range(len(weight)):
        bad |= not 0 <= weight[e] < math.inf
    return bad


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
def _earliest(weight, low, high, state, times, places):  # type: ignore[no-untyped-def]
    """Fill the heap with the earliest arrivals of edges low..high-1; times beyond what there is stay infinite."""
    times[:] = math.inf
    for position in range(low, high):
        state += STEP
        u, a = unit(state), np.float64(weight[position])
        # -log u >= 1 - u: most edges are too late already by that, which spares their logarithm.
        if a > 0 and 1.0 - u < times[0] * a:
            time = -math.log(u) / a
            if time < times[0]:
                times[0], places[0] = time, position
                _sift(times, places, len(times))


@njit(cache=True, nogil=True)
def draw_weighted(indptr, weight, nodes, fanout, key, counts, degree, positions, inverse):  # type: ignore[no-untyped-def]
    """Take min(fanout, edges of positive weight) in-edges of each node.

    Where `inverse` float32 (E,) is not empty, it is filled with 1 / pi (see `Sample.weight`). Here pi is the chance
    1 - exp(-a tau) of an edge to arrive before tau, the first arrival that was not taken: given the others' arrivals,
    that is what decided (Cohen, Kaplan: Summarizing data using bottom-k sketches, PODC 2007).
    """
    times = np.empty(fanout + 1, np.float64)
    places = np.empty(fanout + 1, np.int64)
    w = 0
    counts[0] = 0
    for i in range(len(nodes)):
        if i + AHEAD < len(nodes):
            prefetch(indptr, np.int64(nodes[i + AHEAD]))
        low, high = indptr[nodes[i]], indptr[nodes[i] + 1]
        degree[i] = high - low
        first = w
        _earliest(weight, low, high, stream(key, nodes[i]), times, places)
        for slot in range(1, fanout + 1):  # the root is the latest of fanout + 1: tau
            if times[slot] < math.inf:
                positions[w] = places[slot]
                w += 1
        if len(inverse):
            for e in range(first, w):
                inverse[e] = -1.0 / math.expm1(-times[0] * np.float64(weight[positions[e]]))
        counts[i + 1] = w
