"""Where a node may move and what that gains; and kernels that refine a partition by moves, within the parts' limits.

`descend` is greedy; `search` leaves local optima by passing through worse ones (Fiduccia-Mattheyses). All are
sequential and deterministic, and parts are updated in place.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.partition.base import Parts, WeightedCsr

# A local search may hold so many candidates and moves; beyond that it stops growing.
_HEAP_SIZE = 1 << 14
_LOG_SIZE = 1 << 14
_FREE, _QUEUED, _MOVED, _DONE = 0, 1, 2, 3


@njit(cache=True, nogil=True)
def has_room(v: int, p: int, parts: Parts) -> bool:
    """Whether part p may take node v."""
    if parts.size[p] + parts.weight[v] > parts.cap:
        return False
    if len(parts.train) == 0 or parts.train[v] == 0:
        return True
    return parts.train_size[p] + parts.train[v] <= parts.train_cap


@njit(cache=True, nogil=True)
def move(v: int, p: int, parts: Parts) -> None:
    """Move node v to part p."""
    old = parts.part[v]
    parts.size[old] -= parts.weight[v]
    parts.size[p] += parts.weight[v]
    if len(parts.train) > 0:
        parts.train_size[old] -= parts.train[v]
        parts.train_size[p] += parts.train[v]
    parts.part[v] = p


@njit(cache=True, nogil=True)
def move_all(nodes: Array, chosen: Array, parts: Parts) -> None:
    """Move some nodes, (m,), to the parts that they chose, (m,)."""
    for i in range(len(nodes)):
        move(nodes[i], chosen[i], parts)


@njit(cache=True, nogil=True)
def best_move(v: int, graph: WeightedCsr, parts: Parts, link: Array, near: Array) -> tuple[int, int]:
    """Return (gain, part) of the best neighbouring part with room; part -1 where there is none.

    `link`, int64 zeros (k,), and `near`, int64 (k,), are working memory.
    """
    indptr, indices, edge_weight = graph
    part, size = parts.part, parts.size
    weighted = len(edge_weight) > 0
    here, count, last = part[v], 0, len(indices) - 1
    for e in range(indptr[v], indptr[v + 1]):
        prefetch_item(part, np.int64(indices[min(e + AHEAD, last)]))
        p = part[indices[e]]
        if link[p] == 0:
            near[count] = p
            count += 1
        link[p] += edge_weight[e] if weighted else 1
    inner = link[here]
    best, best_link = -1, np.int64(-1)
    for j in range(count):
        p = near[j]
        w = link[p]
        link[p] = 0
        if p == here or w < best_link or not has_room(v, p, parts):
            continue
        if w > best_link or size[p] < size[best]:
            best, best_link = p, w
    return best_link - inner, best


@njit(cache=True, nogil=True)
def _rise(heap: Array, key: Array, position: Array, i: int) -> None:
    v, k = heap[i], key[i]
    while i > 0:
        up = (i - 1) >> 1
        if key[up] >= k:
            break
        heap[i], key[i] = heap[up], key[up]
        position[heap[i]] = i
        i = up
    heap[i], key[i] = v, k
    position[v] = i


@njit(cache=True, nogil=True)
def _sink(heap: Array, key: Array, position: Array, i: int, length: int) -> None:
    v, k = heap[i], key[i]
    while True:
        down = 2 * i + 1
        if down >= length:
            break
        if down + 1 < length and key[down + 1] > key[down]:
            down += 1
        if key[down] <= k:
            break
        heap[i], key[i] = heap[down], key[down]
        position[heap[i]] = i
        i = down
    heap[i], key[i] = v, k
    position[v] = i


@njit(cache=True, nogil=True)
def _drop_top(heap: Array, key: Array, position: Array, length: int) -> int:
    """Remove the best candidate; returns the new length."""
    length -= 1
    if length > 0:
        heap[0], key[0] = heap[length], key[length]
        _sink(heap, key, position, 0, length)
    return length


@njit(cache=True, nogil=True)
def search(
    graph: WeightedCsr,
    parts: Parts,
    order: Array,
    patience: int,
    max_degree: int,
    max_work: int,
    check_work: int,
    min_gain: float,
) -> int:
    """Fiduccia-Mattheyses by many small local searches; returns the gain.

    Each search starts at one node of a boundary, moves the best candidate around it again and again, even at a loss,
    and takes back what came after its best moment. That leaves local optima that single moves cannot leave. Nodes that
    were moved for good rest until the next call.

    Source: Sanders, Schulz, Engineering Multilevel Graph Partitioning Algorithms, ESA 2011 (multi-try FM); Fiduccia,
    Mattheyses, DAC 1982.

    Args:
        graph, parts: what is improved.
        order: ids (n,), nodes to start from.
        patience: moves without a new best after which a search ends.
        max_degree: larger candidates are not kept up to date.
        max_work: adjacency entries to read at most.
        check_work, min_gain: end when less than `min_gain` was gained by reading `check_work` entries.
    """
    indptr, indices, part = graph.indptr, graph.indices, parts.part
    n, k = len(part), len(parts.size)
    link, near = np.zeros(k, np.int64), np.empty(k, np.int64)
    state = np.zeros(n, np.uint8)
    position = np.zeros(n, np.int32)
    heap, key = np.empty(_HEAP_SIZE, indices.dtype), np.empty(_HEAP_SIZE, np.int64)
    log, origin = np.empty(_LOG_SIZE, indices.dtype), np.empty(_LOG_SIZE, np.int32)
    work, total, checked_work, checked_total = 0, 0, 0, 0
    for s in order:
        if state[s] != _FREE:
            continue
        work += indptr[s + 1] - indptr[s]
        gain, p = best_move(s, graph, parts, link, near)
        if p < 0:
            continue
        heap[0], key[0], position[s], state[s], length = s, gain, 0, _QUEUED, 1
        moves, best_moves, sum_gain, best_gain = 0, 0, 0, 0
        while length > 0 and moves - best_moves < patience and moves < _LOG_SIZE:
            v = heap[0]
            work += indptr[v + 1] - indptr[v]
            gain, p = best_move(v, graph, parts, link, near)
            if p < 0:
                length = _drop_top(heap, key, position, length)
                state[v] = _FREE
                continue
            if gain < key[0]:  # stale: parts filled up meanwhile, or v is too large to be kept up to date
                key[0] = gain
                _sink(heap, key, position, 0, length)
                if heap[0] != v:
                    continue
            length = _drop_top(heap, key, position, length)
            state[v], log[moves], origin[moves] = _MOVED, v, part[v]
            move(v, p, parts)
            moves += 1
            sum_gain += gain
            if sum_gain > best_gain:
                best_gain, best_moves = sum_gain, moves
            for e in range(indptr[v], indptr[v + 1]):
                u = indices[e]
                cost = indptr[u + 1] - indptr[u]
                if state[u] >= _MOVED or cost > max_degree:
                    continue
                work += cost
                gain, p = best_move(u, graph, parts, link, near)
                if state[u] == _QUEUED:
                    i = position[u]
                    before = key[i]
                    key[i] = gain
                    if gain > before:
                        _rise(heap, key, position, i)
                    else:
                        _sink(heap, key, position, i, length)
                elif p >= 0 and length < _HEAP_SIZE:
                    heap[length], key[length], state[u] = u, gain, _QUEUED
                    _rise(heap, key, position, length)
                    length += 1
        for j in range(moves - 1, best_moves - 1, -1):
            move(log[j], origin[j], parts)
            state[log[j]] = _FREE
        for j in range(best_moves):
            state[log[j]] = _DONE
        for j in range(length):
            state[heap[j]] = _FREE
        total += best_gain
        if work > max_work:
            break
        if work - checked_work > check_work:
            if total - checked_total < min_gain:
                break
            checked_work, checked_total = work, total
    return total


@njit(cache=True, nogil=True)
def descend(graph: WeightedCsr, parts: Parts, rounds: int) -> None:
    """Move nodes that gain, or that gain nothing and even the parts out, until few are left (greedy k-way)."""
    indptr, indices, part, size, weight = graph.indptr, graph.indices, parts.part, parts.size, parts.weight
    n = len(part)
    link, near = np.zeros(len(size), np.int64), np.empty(len(size), np.int64)
    active = np.ones(n, np.bool_)
    for _ in range(rounds):
        moved = 0
        for v in range(n):
            if not active[v]:
                continue
            active[v] = False
            gain, p = best_move(v, graph, parts, link, near)
            if p < 0 or gain < 0 or (gain == 0 and size[p] + weight[v] >= size[part[v]]):
                continue
            move(v, p, parts)
            moved += 1
            for e in range(indptr[v], indptr[v + 1]):
                active[indices[e]] = True
        if moved * 1000 < n:
            break


@njit(cache=True, nogil=True)
def rebalance(graph: WeightedCsr, parts: Parts) -> None:
    """Move nodes out of parts above their limit, those that cost least first, while any part has room for them."""
    part, weight, train, size, train_size, cap, train_cap = parts
    n, k, trained = len(part), len(size), len(train) > 0
    link, near = np.zeros(k, np.int64), np.empty(k, np.int64)
    for constraint in range(2 if trained else 1):
        for _ in range(4):  # gains change as nodes move: a few rounds come closer to the cheapest choice
            full = train_size > train_cap if constraint == 1 else size > cap
            if not full.any():
                break
            count = 0
            for v in range(n):
                count += full[part[v]] and (constraint == 0 or train[v] > 0)
            nodes, cost = np.empty(count, np.int64), np.empty(count, np.float64)
            count = 0
            for v in range(n):
                if full[part[v]] and (constraint == 0 or train[v] > 0):
                    gain, _p = best_move(v, graph, parts, link, near)
                    nodes[count], cost[count] = v, -gain / max(1, weight[v])
                    count += 1
            for v in nodes[np.argsort(cost)]:
                here = part[v]
                if (train_size[here] <= train_cap) if constraint == 1 else (size[here] <= cap):
                    continue
                _gain, p = best_move(v, graph, parts, link, near)
                if p < 0:  # the lightest part with room
                    for q in range(k):
                        if (p < 0 or size[q] < size[p]) and has_room(v, q, parts):
                            p = q
                if p >= 0:
                    move(v, p, parts)
