"""Weakly connected components of a graph in compressed rows, by union-find over its edges."""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array
from tasks.storage.graph_store import GraphStore


@njit(cache=True, nogil=True)
def _join_edges(parent: Array, indptr: Array, indices: Array) -> int:
    """Join the ends of all edges to the smaller root, in one thread; return how many components there are."""
    last = len(indices) - 1
    for v in range(len(parent)):
        for e in range(indptr[v], indptr[v + 1]):
            prefetch_item(parent, np.int64(indices[min(e + AHEAD, last)]))
            a, b = np.int64(v), np.int64(indices[e])
            if parent[a] == parent[b]:
                continue
            while parent[a] != a:  # path halving
                parent[a] = parent[parent[a]]
                a = np.int64(parent[a])
            while parent[b] != b:
                parent[b] = parent[parent[b]]
                b = np.int64(parent[b])
            parent[max(a, b)] = min(a, b)
    count = 0
    for v in range(len(parent)):  # a parent is smaller, and has its number already
        if parent[v] == v:
            parent[v] = count
            count += 1
        else:
            parent[v] = parent[parent[v]]
    return count


def connected_components(indptr: Array, indices: Array) -> tuple[int, Array]:
    """Number the weakly connected components: int64 (N + 1,) and id (E,), each edge in one direction or both.

    Return the number of components and component id (N,), numbered by their smallest node. Memory: one id a node.
    """
    num_nodes = len(indptr) - 1
    component = np.arange(num_nodes, dtype=np.int32 if num_nodes <= np.iinfo(np.int32).max else np.int64)
    return int(_join_edges(component, indptr, indices)), component


def number_components(store: GraphStore) -> tuple[int, Array]:
    """Return how many weakly connected components a graph has, and that of each node, (N,)."""
    return connected_components(np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"]))
