"""Weakly connected components of a graph in compressed rows.

Afforest: union-find over the first few neighbours of every node joins almost all of a giant component; then only nodes
outside of it look at the rest of their edges. Source: Sutton, Ben-Nun, Barak, "Optimizing Parallel Graph Connectivity
Computation via Subgraph Sampling", IPDPS 2018. One thread: union-find without atomic operations is not safe on more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.storage.graph_store import GraphStore

_ROUNDS = 2  # neighbours of every node that are joined before the giant component is looked for (the paper's choice)
_SAMPLES = 1024  # nodes asked for their component; a wrong guess costs time, never correctness


@njit(cache=True, nogil=True)
def _join(parent: Array, a: Any, b: Any) -> None:
    """Unite two trees, the smaller root above; path halving on the way."""
    while parent[a] != a:
        parent[a] = parent[parent[a]]
        a = parent[a]
    while parent[b] != b:
        parent[b] = parent[parent[b]]
        b = parent[b]
    if a < b:
        parent[b] = a
    elif b < a:
        parent[a] = b


@njit(cache=True, nogil=True)
def _join_first(parent: Array, indptr: Array, indices: Array, rounds: int) -> None:
    for r in range(rounds):
        for v in range(len(parent)):
            if indptr[v] + r < indptr[v + 1]:
                _join(parent, v, np.int64(indices[indptr[v] + r]))


@njit(cache=True, nogil=True)
def _flatten(parent: Array) -> None:
    """Point every node at its root. Roots are the smallest nodes of their trees, so one pass upwards does."""
    for v in range(len(parent)):
        parent[v] = parent[parent[v]]


@njit(cache=True, nogil=True)
def _most_frequent(parent: Array, samples: int) -> int:
    """Guess the largest component's root from a sample of a flat forest."""
    roots = np.empty(samples, parent.dtype)
    state = np.uint64(88172645463325252)
    for k in range(samples):
        state = state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)
        roots[k] = parent[np.int64((state >> np.uint64(33)) % np.uint64(len(parent)))]
    roots.sort()
    best, best_length, length = roots[0], 0, 0
    for k in range(samples):
        length = length + 1 if k > 0 and roots[k] == roots[k - 1] else 1
        if length > best_length:
            best, best_length = roots[k], length
    return int(best)


@njit(cache=True, nogil=True)
def _join_remaining_edges(parent: Array, giant: int, indptr: Array, indices: Array, skipped: int) -> None:
    """Join all further edges of the nodes outside of the giant component.

    A node may come to point at the giant while this runs and is then skipped with its edges. That is right: an edge
    between two skipped nodes lies within the giant, and any other one is seen from its other end.
    """
    for v in range(len(parent)):
        if parent[v] != giant:
            for i in range(indptr[v] + skipped, indptr[v + 1]):
                _join(parent, v, np.int64(indices[i]))


@njit(cache=True, nogil=True)
def _number(parent: Array) -> int:
    """Replace roots by component numbers 0.. in the order of their smallest nodes; returns how many there are."""
    count = 0
    for v in range(len(parent)):
        if parent[v] == v:
            parent[v] = count
            count += 1
        else:
            parent[v] = parent[parent[v]]
    return count


def connected_components(
    indptr: Array, indices: Array, reverse_indptr: Array | None = None, reverse_indices: Array | None = None
) -> tuple[int, Array]:
    """Number the weakly connected components.

    Takes O(N + E) steps at worst times the inverse Ackermann function; memory: one id a node, nothing an edge.

    Args:
        indptr, indices: int64 (N + 1,) and id (E,): all edges of a symmetric graph, else those in one direction.
        reverse_indptr, reverse_indices: the edges the other way round; needed unless the graph is symmetric.

    Returns:
        The number of components and component id (N,): numbered by their smallest node.
    """
    num_nodes = len(indptr) - 1
    component = np.arange(num_nodes, dtype=np.int32 if num_nodes <= np.iinfo(np.int32).max else np.int64)
    if num_nodes == 0:
        return 0, component
    _join_first(component, indptr, indices, _ROUNDS)
    _flatten(component)
    giant = _most_frequent(component, _SAMPLES)
    _join_remaining_edges(component, giant, indptr, indices, _ROUNDS)
    if reverse_indptr is not None:
        assert reverse_indices is not None
        # An edge out of the giant lies in the other end's row only when rows are read the other way round.
        _join_remaining_edges(component, giant, reverse_indptr, reverse_indices, 0)
    _flatten(component)
    return _number(component), component


def number_components(store: GraphStore) -> tuple[int, Array]:
    """Return how many weakly connected components a graph has, and that of each node, (N,)."""
    names = ["csc_indptr", "csc_indices"] + ([] if store.manifest.symmetric else ["csr_indptr", "csr_indices"])
    return connected_components(*(np.asarray(store[name]) for name in names))
