"""Where a node may move, what that gains, and the move itself; sequential and deterministic, parts updated in place."""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.partition.base import Parts, WeightedCsr


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
