"""Random walks and random edges: the same draws whatever range of them is asked for, on any number of threads.

A walk depends on the key and its number alone. Steps of second order (node2vec, arXiv:1607.00653) are drawn by
rejection, as in KnightKing (SOSP 2019, section 4): propose a step of first order and take it with a probability in
proportion to 1/p, 1 or 1/q. So memory is the graph's own, where alias tables of all pairs of edges take a multiple.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.sampling.neighborhoods.lookup import frozen
from tasks.sampling.walks.alias import alias_table
from tasks.sampling.walks.biased_loops import coin_limits, fill_biased_walks
from tasks.sampling.walks.loops import fill_edges, fill_walks
from tasks.sampling.walks.steps import WeightedSteps


class Walks:
    """Walks over the out-edges of a graph.

    A walk is a row of `length` nodes. A walk that comes to a node without out-edges begins anew at another start, so
    that every row is full; the first node of a walk is written as its complement ~v, a negative number.
    """

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        *,
        key: int,
        length: int,
        by_degree: bool = False,
        weight: Array | None = None,
        p: float = 1.0,
        q: float = 1.0,
    ) -> None:
        """Prepare the draws: 4 bytes a node for starts by round, 8 by degree; for weights as `WeightedSteps`.

        Args:
            indptr: int64 (N + 1,): out-edges of v are indptr[v] to indptr[v + 1].
            indices: int32 or int64 (E,): their ends, ascending within a node.
            key: of all draws.
            length: nodes of a walk, 2 at least.
            by_degree: begin at the source of a random edge, in proportion to weights; else walks number r M to
                (r + 1) M - 1 begin once at each of the M nodes with out-edges, in an order of round r's own.
            weight: float32 (E,): steps in proportion to it; None: uniform.
            p: of node2vec: a step back has weight 1 / p.
            q: a step to where the node before has no edge to has weight 1 / q.

        Raises:
            ValueError: no node has an out-edge, or weights are not fit.
        """
        self.indptr, self.indices = frozen(indptr), frozen(indices)
        self.length, self.key = length, key
        self.steps = None if weight is None else WeightedSteps.make(self.indptr, frozen(weight))
        degree = np.diff(self.indptr) if self.steps is None else self.steps.largest
        starts = np.flatnonzero(degree > 0)
        if not len(starts):
            raise ValueError("no node has an out-edge of a weight above 0: there is nowhere to walk")
        self.starts = starts.astype(self.indices.dtype)
        self.table = None
        if by_degree:
            self.table = alias_table(_strengths(self.indptr, None if self.steps is None else self.steps.weight))
        is_first_order = p == q == 1
        self.back = None if is_first_order else 1.0 / p
        self.out = None if is_first_order else 1.0 / q

    def fill(self, first: int, tokens: Array) -> None:
        """Write walks number first, first + 1, ... into tokens (walks, length), of the dtype of `indices`.

        The kernel holds no lock: threads may fill different arrays at once.
        """
        if self.back is None or self.out is None:
            self._call(fill_walks, self.key, first, tokens)
        else:
            limits = coin_limits(self.back, self.out)
            self._call(fill_biased_walks, limits, self.back, self.out, self.key, first, tokens)

    def fill_edges(self, first: int, sources: Array, targets: Array) -> None:
        """Write random edges number first, first + 1, ...: sources and targets (n,); needs `by_degree`."""
        assert self.table is not None, "random edges begin at nodes drawn by degree"
        self._call(fill_edges, self.key, first, sources, targets)

    def _call(self, kernel: Any, *args: Any) -> None:
        steps = self.steps
        weights = (None,) * 4 if steps is None else (steps.weight, steps.largest, steps.first, steps.tables)
        kernel(self.indptr, self.indices, *weights, self.starts, self.table, *args)


def out_weights(arrays: Any, *, symmetric: bool) -> Array | None:
    """Return the weights of a graph's out-edges in their order, float32 (E,), or None where it has none."""
    weight: Array | None = arrays.get("edge_weight")
    if weight is None or symmetric:
        return weight
    return np.asarray(weight)[np.asarray(arrays["csr_eids"])]


def _strengths(indptr: Array, weight: Array | None) -> Array:
    """Return the sum of the weights of each node's out-edges: float64 (N,)."""
    if weight is None:
        return np.diff(indptr).astype(np.float64)
    sums = np.zeros(len(indptr) - 1)
    _add_weights(indptr, weight, sums)
    return sums


@njit(cache=True, nogil=True)
def _add_weights(indptr, weight, sums):  # type: ignore[no-untyped-def]
    for v in range(len(sums)):
        for e in range(indptr[v], indptr[v + 1]):
            sums[v] += weight[e]
