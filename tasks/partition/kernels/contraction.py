"""Kernels that finish a clustering, and contract it by ranges of clusters that threads may take side by side.

Source: Gottesbüren et al., Deep Multilevel Graph Partitioning, ESA 2021 (two-hop clusters).
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.partition.base import Clusters, Parts, WeightedCsr
from tasks.partition.kernels.moves import has_room, move

_MEMBERS_AHEAD = 4  # their rows lie anywhere in the graph


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


@njit(cache=True, nogil=True)
def group_members(indptr: Array, clusters: Clusters) -> None:
    """List the nodes cluster by cluster: fill all but the labels; `first_member` and `first_entry` come as zeros."""
    label, members, first_member, first_entry = clusters
    for v in range(len(label)):
        first_member[label[v] + 1] += 1
        first_entry[label[v] + 1] += indptr[v + 1] - indptr[v]
    for c in range(len(first_member) - 1):
        first_member[c + 1] += first_member[c]
        first_entry[c + 1] += first_entry[c]
    cursor = first_member[:-1].copy()
    for v in range(len(label)):
        members[cursor[label[v]]] = v
        cursor[label[v]] += 1


@njit(cache=True, nogil=True)
def contract_rows(
    first: int, last: int, first_entry: Array, graph: WeightedCsr, clusters: Clusters, coarse: WeightedCsr
) -> None:
    """Write the rows of clusters first..last - 1: an edge weighs what the edges between its two clusters do.

    The range's rows are written end to end from first_entry[first] on, in arrays as long as the graph's own, and the
    length of row c to coarse.indptr[c + 1]. Rows are not sorted.
    """
    indptr, indices, edge_weight = graph
    label, members, first_member, _ = clusters
    coarse_indptr, coarse_indices, coarse_weight = coarse
    weighted, size = len(edge_weight) > 0, len(indices)
    # Where the row in the making holds a cluster; older rows' places lie before `start`.
    place = np.full(len(coarse_indptr) - 1, -1, np.int64)
    end = first_entry[first]
    for c in range(first, last):
        start = end
        for i in range(first_member[c], first_member[c + 1]):
            v = members[i]
            ahead = indptr[members[min(i + _MEMBERS_AHEAD, len(members) - 1)]]
            prefetch_item(indices, ahead)
            prefetch_item(indices, ahead + 16)
            for e in range(indptr[v], indptr[v + 1]):
                prefetch_item(label, np.int64(indices[min(e + AHEAD, size - 1)]))
                d = label[indices[e]]
                if d == c:
                    continue
                w = edge_weight[e] if weighted else 1
                if place[d] < start:
                    place[d] = end
                    coarse_indices[end] = d
                    coarse_weight[end] = w
                    end += 1
                else:
                    coarse_weight[place[d]] += w
        coarse_indptr[c + 1] = end - start


@njit(cache=True, nogil=True)
def close_gaps(bounds: Array, first_entry: Array, coarse: WeightedCsr) -> int:
    """Move the rows of all ranges next to each other, and add up the rows' lengths; returns how many entries there are.

    bounds: int64 (R + 1,), clusters where ranges begin.
    """
    coarse_indptr, coarse_indices, coarse_weight = coarse
    coarse_indptr[0] = 0
    for c in range(len(coarse_indptr) - 1):
        coarse_indptr[c + 1] += coarse_indptr[c]
    to = 0
    for r in range(len(bounds) - 1):
        first = first_entry[bounds[r]]
        for e in range(first, first + coarse_indptr[bounds[r + 1]] - coarse_indptr[bounds[r]]):
            coarse_indices[to] = coarse_indices[e]
            coarse_weight[to] = coarse_weight[e]
            to += 1
    return to
