"""Which in-edges a layer takes: all, or some of them, each set equally likely.

A kernel writes, for num_dst destinations, `counts` int64 (num_dst + 1,), the running sum of edges taken; `degree`
float32 (num_dst,), in-degrees in the whole graph; and `positions` int64, the CSC position of each edge taken. What is
drawn for a node depends on the key and on the node alone. `indptr` is that of the nodes from `first` on: who holds a
range of a graph draws for its nodes what the whole graph would. Source ids are read in a pass of their own: passes of
independent loads keep more misses in flight than one pass that draws and reads in turn (1.3 times, Zen 4).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.sampling.neighborhoods.fast_random import STEP, below, stream

SMALL_FANOUT = 64
"""Up to here a node is given room for its whole fan-out; above it, edges are counted first."""
_ONE, _SIXTY_THREE = np.uint64(1), np.uint64(63)


@njit(cache=True, nogil=True)
def count_edges(indptr, first, nodes, fanout):  # type: ignore[no-untyped-def]
    """Return the sum of min(in-degree, fanout)."""
    total = 0
    for i in range(len(nodes)):
        if i + AHEAD < len(nodes):
            prefetch_item(indptr, np.int64(nodes[i + AHEAD]) - first)
        at = nodes[i] - first
        total += min(indptr[at + 1] - indptr[at], fanout)
    return total


@njit(cache=True, nogil=True)
def in_degrees(indptr, first, nodes, degree):  # type: ignore[no-untyped-def]
    """Fill degree float32 (n,) with the nodes' in-degrees."""
    for i in range(len(nodes)):
        if i + AHEAD < len(nodes):
            prefetch_item(indptr, np.int64(nodes[i + AHEAD]) - first)
        at = nodes[i] - first
        degree[i] = indptr[at + 1] - indptr[at]


@njit(cache=True, nogil=True)
def gather_ids(indices, positions, ids):  # type: ignore[no-untyped-def]
    """Fill ids (m,) with indices[positions]."""
    for e in range(len(positions)):
        if e + AHEAD < len(positions):
            prefetch_item(indices, positions[e + AHEAD])
        ids[e] = indices[positions[e]]


@njit(cache=True, nogil=True)
def take_all(indptr, first, nodes, counts, degree, positions):  # type: ignore[no-untyped-def]
    """Take every in-edge."""
    w = 0
    counts[0] = 0
    for i in range(len(nodes)):
        if i + AHEAD < len(nodes):
            prefetch_item(indptr, np.int64(nodes[i + AHEAD]) - first)
        at = nodes[i] - first
        low, high = indptr[at], indptr[at + 1]
        degree[i] = high - low
        for position in range(low, high):
            positions[w] = position
            w += 1
        counts[i + 1] = w


@njit(cache=True, nogil=True)
def floyd(low, d, fanout, state, positions, first):  # type: ignore[no-untyped-def]
    """Draw `fanout` of d > fanout edges: j takes its own place where the draw below j + 1 is taken already.

    Bit t % 64 of `seen` is set once t is taken: a clear bit spares looking, and up to 64 edges the bit says all.
    """
    seen = np.uint64(0)
    w = first
    if d <= 64:
        for j in range(d - fanout, d):
            state += STEP
            t = below(state, j + 1)
            t = j if (seen >> np.uint64(t)) & _ONE else t
            seen |= _ONE << np.uint64(t)
            positions[w] = low + t
            w += 1
        return
    for j in range(d - fanout, d):
        state += STEP
        t = below(state, j + 1)
        bit = _ONE << (np.uint64(t) & _SIXTY_THREE)
        if seen & bit:
            for q in range(first, w):
                if positions[q] == low + t:
                    t = j
                    break
            bit = _ONE << (np.uint64(t) & _SIXTY_THREE)
        seen |= bit
        positions[w] = low + t
        w += 1


@njit(cache=True, nogil=True)
def selection(low, d, fanout, state, positions, first):  # type: ignore[no-untyped-def]
    """Draw `fanout` of d edges in one scan (Knuth, The Art of Computer Programming, volume 2, algorithm 3.4.2S)."""
    left = fanout
    w = first
    for j in range(d):
        state += STEP
        if below(state, d - j) < left:
            positions[w] = low + j
            w += 1
            left -= 1


@njit(cache=True, nogil=True)
def draw_uniform(indptr, first, nodes, fanout, key, counts, degree, positions):  # type: ignore[no-untyped-def]
    """Take min(in-degree, fanout) different in-edges of each node; every such set is equally likely.

    `positions` has room for `fanout` entries more than are taken, up to SMALL_FANOUT.
    """
    w = 0
    counts[0] = 0
    for i in range(len(nodes)):
        if i + AHEAD < len(nodes):
            prefetch_item(indptr, np.int64(nodes[i + AHEAD]) - first)
        v = nodes[i]
        low = indptr[v - first]
        d = indptr[v - first + 1] - low
        degree[i] = d
        if d <= fanout:
            # A loop of constant length is predicted well; what it writes beyond d is overwritten.
            for j in range(fanout if fanout <= SMALL_FANOUT else d):
                positions[w + j] = low + j
            w += d
        else:
            # Floyd searches the edges taken, the scan visits all edges: here both cost about the same.
            if fanout <= SMALL_FANOUT or fanout * fanout <= 16 * d:
                floyd(low, d, fanout, stream(key, v), positions, w)
            else:
                selection(low, d, fanout, stream(key, v), positions, w)
            w += fanout
        counts[i + 1] = w


@njit(cache=True, nogil=True)
def inverse_chances(counts, degree, weight):  # type: ignore[no-untyped-def]
    """Fill weight float32 (E,) with 1 / pi: in-degree over the edges taken."""
    for i in range(len(degree)):
        inverse = degree[i] / max(1, counts[i + 1] - counts[i])
        for e in range(counts[i], counts[i + 1]):
            weight[e] = inverse
