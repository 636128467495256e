"""Kernel of the streaming partitioner."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.partition.base import Parts


@njit(cache=True, nogil=True)
def fennel_pass(indptr: Array, indices: Array, parts: Parts, alpha: float, first: int) -> int:
    """Stream all nodes once, starting at node `first`; returns how many changed their part.

    `parts` is updated: its `part` is -1 where unassigned, its `weight` empty, for every node counts one.
    """
    part, size, train_size, cap, train_cap = parts.part, parts.size, parts.train_size, parts.cap, parts.train_cap
    num_nodes, num_parts = len(part), len(size)
    balance_train = len(parts.train) > 0
    count = np.zeros(num_parts, np.int64)
    touched = np.empty(num_parts, np.int64)
    lightest = 0
    pointer = 0
    moved = 0
    for t in range(num_nodes):
        v = t + first
        if v >= num_nodes:
            v -= num_nodes
        trains = balance_train and parts.train[v] > 0
        num_touched = 0
        for e in range(indptr[v], indptr[v + 1]):
            p = part[indices[e]]
            if p >= 0:
                if count[p] == 0:
                    touched[num_touched] = p
                    num_touched += 1
                count[p] += 1
        old = part[v]
        if old >= 0:
            size[old] -= 1
            if trains:
                train_size[old] -= 1
        # Of the parts without neighbours only the lightest can win. A pointer that walks round keeps track of it
        # closely enough; a look at all parts for every node would cost k times the nodes.
        pointer = pointer + 1 if pointer + 1 < num_parts else 0
        if size[pointer] < size[lightest]:
            lightest = pointer
        best = -1
        best_score = -1e300
        if size[lightest] < cap and (not trains or train_size[lightest] < train_cap):
            best = lightest
            best_score = count[lightest] - 1.5 * alpha * np.sqrt(size[lightest])
        for j in range(num_touched):
            p = touched[j]
            if size[p] < cap and (not trains or train_size[p] < train_cap):
                score = count[p] - 1.5 * alpha * np.sqrt(size[p])
                if score > best_score or (score == best_score and p == old):
                    best = p
                    best_score = score
            count[p] = 0
        if best < 0:  # no candidate has room: the lightest of those that do, or of all
            best = _roomiest(size, cap, train_size, train_cap, trains)
        part[v] = best
        size[best] += 1
        if trains:
            train_size[best] += 1
        if best != old:
            moved += 1
    return moved


@njit(cache=True, nogil=True)
def _roomiest(size: Array, cap: int, train_size: Array, train_cap: int, trains: bool) -> int:
    best = -1
    for p in range(len(size)):
        fits = size[p] < cap and (not trains or train_size[p] < train_cap)
        if fits and (best < 0 or size[p] < size[best]):
            best = p
    if best < 0:
        best = int(np.argmin(train_size if trains else size))
    return best
