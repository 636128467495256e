"""Refinement kernels: move nodes between parts so that fewer edges are cut, within the parts' limits.

All kernels are sequential and deterministic. `edge_weight` may be empty (every edge counts 1); `train` may be empty
(training nodes are not balanced). `size` and `train_size`, int64 (k,), are the parts' weights; `part`, `size` and
`train_size` are updated in place.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.storage.graph_store import Array


@njit(cache=True, nogil=True)
def weighted_cut(indptr: Array, indices: Array, edge_weight: Array, part: Array) -> int:
    """Return the weight of entries whose ends lie in two parts (each edge counts twice)."""
    cut = 0
    weighted = len(edge_weight) > 0
    for v in range(len(part)):
        for e in range(indptr[v], indptr[v + 1]):
            if part[indices[e]] != part[v]:
                cut += edge_weight[e] if weighted else 1
    return cut


@njit(cache=True, nogil=True)
def best_move(
    v: int,
    indptr: Array,
    indices: Array,
    edge_weight: Array,
    weight: Array,
    train: Array,
    part: Array,
    size: Array,
    train_size: Array,
    cap: int,
    train_cap: int,
    link: Array,
    near: Array,
) -> tuple[int, int]:
    """Return (gain, part) of the best neighbouring part with room; part -1 where there is none.

    `link`, int64 zeros (k,), and `near`, int64 (k,), are working memory.
    """
    weighted, trained = len(edge_weight) > 0, len(train) > 0
    own, count = part[v], 0
    for e in range(indptr[v], indptr[v + 1]):
        p = part[indices[e]]
        if link[p] == 0:
            near[count] = p
            count += 1
        link[p] += edge_weight[e] if weighted else 1
    inner = link[own]
    best, best_link = -1, np.int64(-1)
    for j in range(count):
        p = near[j]
        w = link[p]
        link[p] = 0
        if p == own or w < best_link or size[p] + weight[v] > cap:
            continue
        if trained and train[v] > 0 and train_size[p] + train[v] > train_cap:
            continue
        if w > best_link or size[p] < size[best]:
            best, best_link = p, w
    return best_link - inner, best


@njit(cache=True, nogil=True)
def descend(
    indptr: Array,
    indices: Array,
    edge_weight: Array,
    weight: Array,
    train: Array,
    part: Array,
    size: Array,
    train_size: Array,
    cap: int,
    train_cap: int,
    rounds: int,
) -> None:
    """Move nodes that gain, or that gain nothing and even the parts out, until few are left (greedy k-way)."""
    n, trained = len(part), len(train) > 0
    link, near = np.zeros(len(size), np.int64), np.empty(len(size), np.int64)
    active = np.ones(n, np.bool_)
    for _ in range(rounds):
        moved = 0
        for v in range(n):
            if not active[v]:
                continue
            active[v] = False
            gain, p = best_move(
                v, indptr, indices, edge_weight, weight, train, part, size, train_size, cap, train_cap, link, near
            )
            own = part[v]
            if p < 0 or gain < 0 or (gain == 0 and size[p] + weight[v] >= size[own]):
                continue
            size[own] -= weight[v]
            size[p] += weight[v]
            if trained:
                train_size[own] -= train[v]
                train_size[p] += train[v]
            part[v] = p
            moved += 1
            for e in range(indptr[v], indptr[v + 1]):
                active[indices[e]] = True
        if moved * 1000 < n:
            break


@njit(cache=True, nogil=True)
def rebalance(
    indptr: Array,
    indices: Array,
    edge_weight: Array,
    weight: Array,
    train: Array,
    part: Array,
    size: Array,
    train_size: Array,
    cap: int,
    train_cap: int,
) -> None:
    """Move nodes out of parts above their limit, those that cost least first, while any part has room for them."""
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
                    gain, _p = best_move(
                        v,
                        indptr,
                        indices,
                        edge_weight,
                        weight,
                        train,
                        part,
                        size,
                        train_size,
                        cap,
                        train_cap,
                        link,
                        near,
                    )
                    nodes[count], cost[count] = v, -gain / max(1, weight[v])
                    count += 1
            for v in nodes[np.argsort(cost)]:
                own = part[v]
                if (train_size[own] <= train_cap) if constraint == 1 else (size[own] <= cap):
                    continue
                _gain, p = best_move(
                    v, indptr, indices, edge_weight, weight, train, part, size, train_size, cap, train_cap, link, near
                )
                if p < 0:
                    p = _lightest_with_room(v, weight, train, size, train_size, cap, train_cap)
                if p < 0:
                    continue
                size[own] -= weight[v]
                size[p] += weight[v]
                if trained:
                    train_size[own] -= train[v]
                    train_size[p] += train[v]
                part[v] = p


@njit(cache=True, nogil=True)
def _lightest_with_room(
    v: int, weight: Array, train: Array, size: Array, train_size: Array, cap: int, train_cap: int
) -> int:
    best = -1
    for p in range(len(size)):
        if size[p] + weight[v] > cap or (best >= 0 and size[p] >= size[best]):
            continue
        if len(train) == 0 or train[v] == 0 or train_size[p] + train[v] <= train_cap:
            best = p
    return best
