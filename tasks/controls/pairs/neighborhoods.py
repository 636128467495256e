"""Scores of pairs by their ends' neighbours in the training graph: what costs nothing and is often hard to beat.

| control | score of a pair (u, v) |
|---|---|
| `degree` | d(u) d(v), preferential attachment |
| `common_neighbors` | how many nodes are neighbours of both |
| `adamic_adar` | the sum over them of 1 / log d(w) (Adamic and Adar, 2003) |

Edges count in both directions. d is the number of different neighbours, a node itself not among them; so each node that
two others have in common has a logarithm above 0.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit

from models.kernels.threads import even_rows, run_each
from tasks.evaluators.metrics import Array
from tasks.storage.graph_store import GraphStore

_MOST_STEPS = 20_000_000_000
"""Neighbours that are looked at for a split; so many take about a minute."""


class NeighborhoodControl:
    """Scores pairs of nodes of a graph."""

    def __init__(self, store: GraphStore) -> None:
        """Find every node's lists of neighbours; a directed graph has two of them."""
        outgoing = (None, None) if store.manifest.symmetric else (store["csr_indptr"], store["csr_indices"])
        self._lists: tuple[Any, Any, Any, Any] = (store["csc_indptr"], store["csc_indices"], *outgoing)
        self._num_nodes = store.manifest.num_nodes
        indptrs = (indptr for indptr in self._lists[::2] if indptr is not None)
        self._lengths: Array = np.sum([np.diff(np.asarray(indptr)) for indptr in indptrs], 0)
        self._local = threading.local()

    def steps(self, pairs: Array) -> int:
        """Return how many neighbours `scores` looks at for pairs, int (n, 2)."""
        return int(self._lengths[np.asarray(pairs)].sum())

    def scores(self, pairs: Array) -> dict[str, Array] | None:
        """Score pairs, int (n, 2): float32 (n,) by control; None where that takes too long."""
        if self.steps(pairs) > _MOST_STEPS:
            return None
        order = np.argsort(pairs[:, 0], kind="stable")  # a node's neighbours are marked once for all of its pairs
        sources, targets = (np.ascontiguousarray(pairs[order, end], np.int64) for end in (0, 1))
        common, adamic_adar = np.zeros(len(pairs), np.float32), np.zeros(len(pairs), np.float32)
        bounds, degree, inverse_log = even_rows(len(pairs)), self._degree, self._inverse_log

        def work(number: int) -> None:
            part = slice(bounds[number], bounds[number + 1])
            parts = common[part], adamic_adar[part]
            _meet(sources[part], targets[part], *self._lists, inverse_log, self._marks(), *parts)

        run_each(work, len(bounds) - 1)
        by_control = {"degree": degree[sources] * degree[targets].astype(np.float32)}
        by_control |= {"common_neighbors": common, "adamic_adar": adamic_adar}
        as_given = np.argsort(order)
        return {name: values[as_given].astype(np.float32) for name, values in by_control.items()}

    def _marks(self) -> Array:
        """Return this thread's two rows of marks: int64 (2, N + 1), the last one of a row is its latest."""
        marks: Array | None = getattr(self._local, "marks", None)
        if marks is None:
            marks = self._local.marks = np.zeros((2, self._num_nodes + 1), np.int64)
        return marks

    @cached_property
    def _degree(self) -> Array:
        """How many different neighbours each node has, int64 (N,)."""
        degree, bounds = np.zeros(self._num_nodes, np.int64), even_rows(self._num_nodes)
        run_each(
            lambda i: _count_neighbors(bounds[i], bounds[i + 1], *self._lists, self._marks(), degree), len(bounds) - 1
        )
        return degree

    @cached_property
    def _inverse_log(self) -> Array:
        """1 / log of each node's degree, float32 (N,); 0 below two neighbours, where no pair can have it in common."""
        weights, several = np.zeros(self._num_nodes, np.float32), self._degree > 1
        weights[several] = 1 / np.log(self._degree[several])
        return weights


@njit(cache=True, nogil=True)
def _next_mark(marks):  # type: ignore[no-untyped-def]
    """Return a number that no mark has yet."""
    marks[-1] += 1
    return marks[-1]


@njit(cache=True, nogil=True)
def _mark_neighbors(node, indptr, indices, mark, marks):  # type: ignore[no-untyped-def]
    """Mark a node's neighbours; return how many were not marked so before."""
    fresh = 0
    for e in range(indptr[node], indptr[node + 1]):
        fresh += marks[indices[e]] != mark
        marks[indices[e]] = mark
    return fresh


@njit(cache=True, nogil=True)
def _count_neighbors(low, high, indptr, indices, more_indptr, more_indices, marks, degree):  # type: ignore[no-untyped-def]
    for node in range(low, high):
        mark = _next_mark(marks[0])
        marks[0, node] = mark  # a loop is no neighbour
        degree[node] = _mark_neighbors(node, indptr, indices, mark, marks[0])
        if more_indptr is not None:
            degree[node] += _mark_neighbors(node, more_indptr, more_indices, mark, marks[0])


@njit(cache=True, nogil=True)
def _add_common(node, indptr, indices, mark, seen, marks, inverse_log):  # type: ignore[no-untyped-def]
    """Return how many of a node's neighbours are marked and not seen yet, and the sum of their weights."""
    count, total = 0, np.float32(0)
    for e in range(indptr[node], indptr[node + 1]):
        other = indices[e]
        if marks[0, other] == mark and marks[1, other] != seen:
            marks[1, other] = seen
            count += 1
            total += inverse_log[other]
    return count, total


@njit(cache=True, nogil=True)
def _meet(  # type: ignore[no-untyped-def]
    sources, targets, indptr, indices, more_indptr, more_indices, inverse_log, marks, common, adamic_adar
):
    """Count the nodes that both ends of each pair have as neighbours, and add up their weights."""
    source, mark = np.int64(-1), np.int64(0)
    for i in range(len(sources)):
        target = targets[i]
        if sources[i] != source:
            source, mark = sources[i], _next_mark(marks[0])
            _mark_neighbors(source, indptr, indices, mark, marks[0])
            if more_indptr is not None:
                _mark_neighbors(source, more_indptr, more_indices, mark, marks[0])
            marks[0, source] = 0  # loops are no neighbours
        seen = _next_mark(marks[1])
        marks[1, target] = seen
        count, total = _add_common(target, indptr, indices, mark, seen, marks, inverse_log)
        if more_indptr is not None:
            further, weight = _add_common(target, more_indptr, more_indices, mark, seen, marks, inverse_log)
            count, total = count + further, total + weight
        common[i], adamic_adar[i] = count, total
