"""Kernels that finish a clustering: nodes that stayed alone, and the clusters' numbers.

Source: Gottesbüren et al., Deep Multilevel Graph Partitioning, ESA 2021 (two-hop clusters).
"""

from __future__ import annotations

from numba import njit

from tasks.arrays import Array
from tasks.partition.base import Parts, WeightedCsr
from tasks.partition.kernels.moves import has_room, move


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
