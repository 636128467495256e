"""Refinement kernels: move nodes between parts so that fewer edges are cut, within the parts' limits."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.partition.base import Parts, WeightedCsr
from tasks.partition.kernels.moves import best_move, has_room, move


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
