"""The loops of `saint_draws`: draws, and what one draw contains, for single nodes, for edges and for walks."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.counter_random import below
from tasks.sampling.neighborhoods.lookup import find_edge


@njit(cache=True, nogil=True)
def draw_sources(indices, key, out):  # type: ignore[no-untyped-def]
    """Fill out (m,) with the sources of uniform edges."""
    for i in range(len(out)):
        out[i] = indices[below(key, 0, i, len(indices))]


@njit(cache=True, nogil=True)
def add_sources(indices, contains):  # type: ignore[no-untyped-def]
    """Add to contains (N,) the probability of being the source of a uniform edge."""
    for e in range(len(indices)):
        contains[indices[e]] += 1
    contains /= len(indices)


@njit(cache=True, nogil=True)
def add_ends(indptr, indices, targets, contains):  # type: ignore[no-untyped-def]
    """Add to contains (N,) the probability of being an end of a drawn edge (see `EdgeDraws`)."""
    for i in range(len(targets)):
        v = targets[i]
        contains[v] += 1 / len(targets)
        share = 1 / (len(targets) * (indptr[v + 1] - indptr[v]))
        for e in range(indptr[v], indptr[v + 1]):
            if indices[e] != v:
                contains[indices[e]] += share


@njit(cache=True, nogil=True)
def draw_ends(indptr, indices, targets, key, out):  # type: ignore[no-untyped-def]
    """Fill out (2 m,) with sources and targets of drawn edges."""
    for i in range(len(out) // 2):
        v = targets[below(key, 0, i, len(targets))]
        out[2 * i] = indices[indptr[v] + below(key, 1, i, indptr[v + 1] - indptr[v])]
        out[2 * i + 1] = v


@njit(cache=True, nogil=True)
def edge_joint(indptr, indices, symmetric, num_targets, nodes, sub_indptr, sub_indices, out):  # type: ignore[no-untyped-def]
    """Fill out (E,) with the probability that a drawn edge is any u -> v or v -> u, for the subgraph's edges u -> v."""
    for i in range(len(nodes)):
        v = nodes[i]
        first, last = sub_indptr[i], sub_indptr[i + 1]
        while first < last:
            stop = first + 1
            while stop < last and sub_indices[stop] == sub_indices[first]:
                stop += 1
            u, back = nodes[sub_indices[first]], 0
            if u != v and symmetric:
                back = stop - first
            elif u != v:
                at = find_edge(indptr, indices, v, u)
                while 0 <= at < indptr[u + 1] and indices[at] == v:
                    back += 1
                    at += 1
            q = (stop - first) / (num_targets * (indptr[v + 1] - indptr[v]))
            if back:
                q += back / (num_targets * (indptr[u + 1] - indptr[u]))
            for e in range(first, stop):
                out[e] = q
            first = stop


@njit(cache=True, nogil=True)
def _walk(indptr, indices, root, key, number, path, steps):  # type: ignore[no-untyped-def]
    """Fill path (L + 1,) with a walk and steps (L + 1,) with the CSC position of the edge that leads to each node."""
    path[0] = v = root
    for t in range(1, len(path)):
        degree = indptr[v + 1] - indptr[v]
        steps[t] = -1
        if degree:
            steps[t] = indptr[v] + below(key, number, t, degree)
            v = np.int64(indices[steps[t]])
        path[t] = v


@njit(cache=True, nogil=True)
def draw_walks(indptr, indices, key, out):  # type: ignore[no-untyped-def]
    """Fill out (m, L + 1) with walks from uniform roots."""
    steps = np.empty(out.shape[1], np.int64)
    for i in range(len(out)):
        _walk(indptr, indices, below(key, i, 0, len(indptr) - 1), key, i, out[i], steps)


@njit(cache=True, nogil=True)
def count_walks(indptr, indices, symmetric, length, repeats, key, visits, together):  # type: ignore[no-untyped-def]
    """Walk `repeats` times from each node; count in visits (N,) and together (E,) the walks that meet v, and u and v.

    On symmetric graphs a pair is counted at one of its two edges, see `share_with_reverse`; else at every edge u -> v.
    """
    path, steps = np.empty(length + 1, np.int64), np.empty(length + 1, np.int64)
    is_new = np.empty(length + 1, np.bool_)
    for number in range(repeats * (len(indptr) - 1)):
        _walk(indptr, indices, number // repeats, key, number, path, steps)
        for t in range(length + 1):
            is_new[t] = True
            for before in range(t):
                is_new[t] &= path[before] != path[t]
            if not is_new[t]:
                continue
            visits[path[t]] += 1
            for before in range(t):
                if not is_new[before]:
                    continue
                # the walk goes against the edges: the later node is the source
                at = steps[t] if before == t - 1 else find_edge(indptr, indices, path[t], path[before])
                if at >= 0:
                    together[at] += 1
                if not symmetric:
                    at = find_edge(indptr, indices, path[before], path[t])
                    if at >= 0:
                        together[at] += 1


@njit(cache=True, nogil=True)
def share_with_reverse(indptr, indices, counts):  # type: ignore[no-untyped-def]
    """Give both directions of each edge of a symmetric graph the sum of their counts (E,)."""
    fill = indptr[:-1].copy()  # where the next larger target stands in each node's list: targets come ascending
    for v in range(len(indptr) - 1):
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            reverse = fill[u]
            fill[u] = reverse + 1
            if u < v:
                counts[e] += counts[reverse]
                counts[reverse] = counts[e]


@njit(cache=True, nogil=True)
def share_with_parallel(indptr, indices, counts):  # type: ignore[no-untyped-def]
    """Give all edges from one node to another the sum of their counts (E,)."""
    for v in range(len(indptr) - 1):
        first = indptr[v]
        while first < indptr[v + 1]:
            stop = first + 1
            while stop < indptr[v + 1] and indices[stop] == indices[first]:
                counts[first] += counts[stop]
                stop += 1
            for e in range(first + 1, stop):
                counts[e] = counts[first]
            first = stop


@njit(cache=True, nogil=True)
def walk_joint(indptr, together, walks, nodes, sub_indptr, positions, out):  # type: ignore[no-untyped-def]
    """Fill out (E,) with together / walks of the edges u -> v, but at least 1 / (N d_v): 0 would weigh infinitely."""
    for i in range(len(nodes)):
        degree = indptr[nodes[i] + 1] - indptr[nodes[i]]
        least = 1 / ((len(indptr) - 1) * max(1, degree))
        for e in range(sub_indptr[i], sub_indptr[i + 1]):
            out[e] = max(together[positions[e]] / walks, least)
