"""Coarsening kernels: cluster nodes by size-constrained label propagation.

All kernels are sequential, so that the same seed gives the same clusters. Letters: v, u nodes; c cluster.

Sources: Meyerhenke, Sanders, Schulz, Partitioning Complex Networks via Size-constrained Clustering, SEA 2014 (the
scheme); Gottesbüren et al., Deep Multilevel Graph Partitioning, ESA 2021 (two-hop clusters, degree order).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.partition.base import Parts, WeightedCsr
from tasks.partition.kernels.moves import has_room, move

# Neighbours that a node looks at in the first round, when every label is still new. Looking at all of them took 20 %
# longer on 27 M edges (EPYC, 2026) for the same cut.
_FIRST_ROUND_SAMPLE = 32
# A round that moves less than this share of the nodes is the last.
_MIN_MOVED = 0.01


@njit(cache=True, nogil=True)
def next_random(state: np.uint64) -> np.uint64:
    """Marsaglia's xorshift64."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@njit(cache=True, nogil=True)
def first_state(seed: int) -> np.uint64:
    """A state for `next_random`, never 0."""
    return np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(0x2545F4914F6CDD1D)


@njit(cache=True, nogil=True)
def shuffle_blocks(order: Array, block: int, seed: int) -> None:
    """Shuffle each run of `block` items in place: randomness for ties, locality for caches."""
    state = first_state(seed)
    for low in range(0, len(order), block):
        high = min(len(order), low + block)
        for i in range(high - 1, low, -1):
            state = next_random(state)
            j = low + np.int64((state >> np.uint64(1)) % np.uint64(i - low + 1))
            order[i], order[j] = order[j], order[i]


@njit(cache=True, nogil=True)
def degree_order(indptr: Array, order: Array) -> None:
    """Write the nodes by powers of two of their degree, ascending: hubs choose when their neighbours have settled."""
    start = np.zeros(66, np.int64)
    for v in range(len(order)):
        start[_bits(indptr[v + 1] - indptr[v]) + 1] += 1
    for b in range(65):
        start[b + 1] += start[b]
    for v in range(len(order)):
        b = _bits(indptr[v + 1] - indptr[v])
        order[start[b]] = v
        start[b] += 1


@njit(cache=True, nogil=True)
def _bits(number: int) -> int:
    bits = 0
    while number > 0:
        number >>= 1
        bits += 1
    return bits


@njit(cache=True, nogil=True)
def propagate(graph: WeightedCsr, clusters: Parts, order: Array, rounds: int, seed: int, rating: Array) -> None:
    """Move every node to the cluster that most of its edge weight leads to, as long as that has room.

    Ties are broken at random: without that, grids fall into stripes. After the first round only nodes with a moved
    neighbour are looked at again.

    Clusters are named by node ids, each node its own at first. `order`, ids (n,), is that of the visits; `rating`,
    zeros (n,), is working memory.
    """
    indptr, indices, edge_weight = graph
    label = clusters.part
    n = len(label)
    weighted = len(edge_weight) > 0
    active = np.ones(n, np.bool_)
    max_degree = 0
    for v in range(n):
        max_degree = max(max_degree, indptr[v + 1] - indptr[v])
    near = np.empty(max_degree, label.dtype)
    state = first_state(seed)
    for r in range(rounds):
        moved = 0
        for v in order:
            low, high = indptr[v], indptr[v + 1]
            if not active[v] or low == high:
                continue
            active[v] = False
            step = 1
            if r == 0 and high - low > _FIRST_ROUND_SAMPLE:
                step = (high - low + _FIRST_ROUND_SAMPLE - 1) // _FIRST_ROUND_SAMPLE
            # Two loops: the first one only gathers, so that its cache misses overlap.
            num_near = 0
            for e in range(low, high, step):
                near[num_near] = label[indices[e]]
                num_near += 1
            distinct = 0
            for j in range(num_near):
                c = near[j]
                before = rating[c]
                near[distinct] = c
                distinct += before == 0
                rating[c] = before + (edge_weight[low + j * step] if weighted else 1)
            own = label[v]
            best, best_rating, ties = own, rating[own], 1
            rating[own] = 0
            for j in range(distinct):
                c = near[j]
                rated = rating[c]
                rating[c] = 0
                if rated == 0 or rated < best_rating or not has_room(v, c, clusters):
                    continue
                if rated > best_rating:
                    best, best_rating, ties = c, rated, 1
                else:
                    ties += 1
                    state = next_random(state)
                    if (state >> np.uint64(11)) % np.uint64(ties) == 0:
                        best = c
            if best != own:
                move(v, best, clusters)
                moved += 1
                for e in range(low, high):
                    active[indices[e]] = True
        if moved < _MIN_MOVED * n:
            break


@njit(cache=True, nogil=True)
def join_two_hop(graph: WeightedCsr, clusters: Parts, rating: Array, host: Array) -> None:
    """Join nodes that stayed alone and favour the same cluster, which had no room for them (leaves of a hub).

    Nodes without edges join each other. `host` is ids (n,), -1 everywhere: working memory.
    """
    indptr, indices, edge_weight = graph
    label, weighted = clusters.part, len(edge_weight) > 0
    isolated_host = -1
    for v in range(len(label)):
        if label[v] != v or clusters.size[v] != clusters.weight[v]:
            continue
        favourite, best = -1, 0
        for e in range(indptr[v], indptr[v + 1]):
            rating[label[indices[e]]] += edge_weight[e] if weighted else 1
        for e in range(indptr[v], indptr[v + 1]):
            c = label[indices[e]]
            if rating[c] > best:
                favourite, best = c, rating[c]
            rating[c] = 0
        if favourite == v:
            continue
        h = isolated_host if favourite < 0 else host[favourite]
        if h >= 0 and has_room(v, h, clusters):
            move(v, h, clusters)
        elif favourite < 0:
            isolated_host = v
        else:
            host[favourite] = v


@njit(cache=True, nogil=True)
def number_clusters(label: Array, new: Array) -> int:
    """Rename clusters to 0..C - 1 in the order of their first node; `new`, -1 everywhere, is working memory."""
    count = 0
    for v in range(len(label)):
        c = label[v]
        if new[c] < 0:
            new[c] = count
            count += 1
        label[v] = new[c]
    return count
