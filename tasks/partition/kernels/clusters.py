"""Kernels that cluster a graph by ranges of nodes and contract it by ranges of clusters, in threads.

Each range reads its own rows, from what all nodes had when the wave began, and writes to an array of its own, so that
what comes out does not depend on the number of threads. Within a range a node sees what the nodes before it chose.

Source: Meyerhenke, Sanders, Schulz, Parallel Graph Partitioning for Complex Networks, IPDPS 2015 (label propagation by
ranges of nodes, with labels and sizes exchanged in phases); Gottesbüren et al., Deep Multilevel Graph Partitioning, ESA
2021 (two-hop clusters).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.counter_random import mix
from tasks.partition.base import Clusters, Parts, WeightedCsr
from tasks.partition.kernels.moves import has_room, move

RANGES_PER_WAVE = 16
# Neighbours that a node looks at in the first round, when every label is still new.
_FIRST_ROUND_SAMPLE = 32
_MEMBERS_AHEAD = 4  # their rows lie anywhere in the graph


class RangeRows(NamedTuple):
    """The rows of a range of nodes."""

    first: int
    indptr: Array
    """int64 (n + 1,): node first + i has the entries indptr[i] - indptr[0] to indptr[i + 1] - indptr[0]."""
    indices: Array
    """id (m,): the range's entries."""
    edge_weight: Array
    """int (m,), or empty: every edge counts 1."""


@njit(cache=True, nogil=True)
def _slot(keys: Array, mask: int, key: int) -> Any:
    """Return where `key` is, or would be, in an open-addressing table; free places hold -1."""
    slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)) & mask
    while keys[slot] != key and keys[slot] >= 0:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True, nogil=True)
def _table_size(entries: int) -> int:
    """Return a power of two that leaves half of a table free."""
    size = 8
    while size < 2 * entries:
        size *= 2
    return size


@njit(cache=True, nogil=True)
def choose_clusters(rows: RangeRows, clusters: Parts, key: int, sample: bool, chosen: Array) -> None:
    """Choose for each node of a range the cluster that most of its edge weight leads to, as long as that has room.

    Ties are broken at random. Of a cluster's room a range takes a share of 1 / RANGES_PER_WAVE, and one node while
    there is any, so that the ranges of a wave together exceed the cap by few. `clusters`, of all nodes, each named by a
    node, stay; `key` names the round, for ties; `sample`: look at some of the neighbours of large nodes only; `chosen`,
    id (n,), is filled.
    """
    first, indptr, indices, edge_weight = rows
    label, weight, train, size, train_size, cap, train_cap = clusters
    weighted, trained = len(edge_weight) > 0, len(train) > 0
    n, longest, end = len(chosen), 0, len(indices)
    last = first + n
    for i in range(n):
        chosen[i] = label[first + i]
        longest = max(longest, indptr[i + 1] - indptr[i])
    near, slots = np.empty(longest, label.dtype), np.empty(longest, np.int64)
    keys = np.full(_table_size(longest), -1, label.dtype)
    counts = np.zeros(len(keys), np.int64)
    # A range's arrivals stay in the second-level cache, where an array as long as the nodes would not.
    arrival_keys = np.full(_table_size(n), -1, label.dtype)
    arrivals, train_arrivals = np.zeros((2, len(arrival_keys)), np.int64)
    for i in range(n):
        low, high = indptr[i] - indptr[0], indptr[i + 1] - indptr[0]
        if low == high:
            continue
        step = 1
        if sample and high - low > _FIRST_ROUND_SAMPLE:
            step = (high - low + _FIRST_ROUND_SAMPLE - 1) // _FIRST_ROUND_SAMPLE
        num_near = 0
        for e in range(low, high, step):
            prefetch_item(label, np.int64(indices[min(e + AHEAD, end - 1)]))
            u = indices[e]
            near[num_near] = chosen[u - first] if first <= u < last else label[u]
            num_near += 1
        mask = _table_size(num_near) - 1
        distinct = 0
        for j in range(num_near):
            s = _slot(keys, mask, near[j])
            if keys[s] < 0:
                keys[s] = near[j]
                slots[distinct] = s
                distinct += 1
            counts[s] += edge_weight[low + j * step] if weighted else 1
        old = chosen[i]
        s = _slot(keys, mask, old)
        best, best_count, ties = old, counts[s] if keys[s] == old else 0, 1
        w, t = weight[first + i], train[first + i] if trained else 0
        state = mix(np.uint64(key) ^ mix(np.uint64(first + i)))
        for j in range(distinct):
            s = slots[j]
            c, count = keys[s], counts[s]
            keys[s], counts[s] = -1, 0
            room = cap - size[c] if count >= best_count and c != old else 0
            if room < w:
                continue
            a = _slot(arrival_keys, len(arrival_keys) - 1, c)
            if arrivals[a] + w > max(w, room // RANGES_PER_WAVE):
                continue
            train_room = train_cap - train_size[c] if t > 0 else t
            if train_room < t or train_arrivals[a] + t > max(t, train_room // RANGES_PER_WAVE):
                continue
            if count > best_count:
                best, best_count, ties = c, count, 1
                continue
            ties += 1
            state = mix(state)
            if (state >> np.uint64(11)) % np.uint64(ties) == 0:
                best = c
        if best != old:
            chosen[i] = best
            a = _slot(arrival_keys, len(arrival_keys) - 1, best)
            arrival_keys[a] = best
            arrivals[a] += w
            train_arrivals[a] += t


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
