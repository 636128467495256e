"""Local search kernels: leave local optima of a partition by passing through worse ones (Fiduccia-Mattheyses)."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.partition.base import Parts, WeightedCsr
from tasks.partition.kernels.moves import best_move, best_move_by_table, move

# A local search may hold so many candidates and moves; beyond that it stops growing.
_HEAP_SIZE = 1 << 14
_LOG_SIZE = 1 << 14
_FREE, _QUEUED, _MOVED, _DONE = 0, 1, 2, 3


@njit(cache=True, nogil=True)
def _best(v: int, graph: WeightedCsr, parts: Parts, table: Array, link: Array, near: Array) -> tuple[int, int]:
    if len(table) > 0:
        return best_move_by_table(v, table, parts)
    return best_move(v, graph, parts, link, near)


@njit(cache=True, nogil=True)
def fill_table(graph: WeightedCsr, part: Array, table: Array) -> None:
    """Add up the edge weight from each node to each part; `table` holds zeros, (n, k)."""
    indptr, indices, edge_weight = graph
    weighted = len(edge_weight) > 0
    for v in range(len(table)):
        for e in range(indptr[v], indptr[v + 1]):
            table[v, part[indices[e]]] += edge_weight[e] if weighted else 1


@njit(cache=True, nogil=True)
def _move(v: int, new: int, graph: WeightedCsr, parts: Parts, table: Array) -> None:
    """Move node v to part `new`, and note it in the table."""
    old = parts.part[v]
    move(v, new, parts)
    if len(table) == 0:
        return
    indptr, indices, edge_weight = graph
    weighted = len(edge_weight) > 0
    for e in range(indptr[v], indptr[v + 1]):
        w = edge_weight[e] if weighted else 1
        table[indices[e], old] -= w
        table[indices[e], new] += w


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
    table: Array,
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
        table: as `fill_table` left it, or (0, k): it makes a candidate cost k instead of its degree.
        order: ids (n,), nodes to start from.
        patience: moves without a new best after which a search ends.
        max_degree: candidates that cost more are not kept up to date.
        max_work: adjacency entries to read at most.
        check_work, min_gain: end when less than `min_gain` was gained by reading `check_work` entries.
    """
    indptr, indices, part = graph.indptr, graph.indices, parts.part
    n, k, tabled = len(part), len(parts.size), len(table) > 0
    link, near = np.zeros(k, np.int64), np.empty(k, np.int64)
    state = np.zeros(n, np.uint8)
    position = np.zeros(n, np.int32)
    heap, key = np.empty(_HEAP_SIZE, indices.dtype), np.empty(_HEAP_SIZE, np.int64)
    log, origin = np.empty(_LOG_SIZE, indices.dtype), np.empty(_LOG_SIZE, np.int32)
    work, total, checked_work, checked_total = 0, 0, 0, 0
    for s in order:
        if state[s] != _FREE:
            continue
        work += k if tabled else indptr[s + 1] - indptr[s]
        gain, p = _best(s, graph, parts, table, link, near)
        if p < 0:
            continue
        heap[0], key[0], position[s], state[s], length = s, gain, 0, _QUEUED, 1
        moves, best_moves, sum_gain, best_gain = 0, 0, 0, 0
        while length > 0 and moves - best_moves < patience and moves < _LOG_SIZE:
            v = heap[0]
            work += k if tabled else indptr[v + 1] - indptr[v]
            gain, p = _best(v, graph, parts, table, link, near)
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
            _move(v, p, graph, parts, table)
            moves += 1
            sum_gain += gain
            if sum_gain > best_gain:
                best_gain, best_moves = sum_gain, moves
            for e in range(indptr[v], indptr[v + 1]):
                u = indices[e]
                cost = k if tabled else indptr[u + 1] - indptr[u]
                if state[u] >= _MOVED or cost > max_degree:
                    continue
                work += cost
                gain, p = _best(u, graph, parts, table, link, near)
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
            _move(log[j], origin[j], graph, parts, table)
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
