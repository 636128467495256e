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
from tasks.sampling.neighborhoods.fast_random import STEP, below, stream
from tasks.sampling.neighborhoods.in_edges import frozen
from tasks.sampling.walks.alias import alias_table
from tasks.sampling.walks.biased_loops import coin_limits, fill_biased_walks, signatures
from tasks.sampling.walks.steps import WeightedSteps, fill_edges, fill_walks


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

        Where p or q is not 1, 8 bytes a node more: the nodes' signatures (`biased_loops`).

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
            sums = np.zeros(len(indptr) - 1) if self.steps else np.diff(self.indptr).astype(np.float64)
            if self.steps is not None:
                _add_weights(self.indptr, self.steps.weight, sums)
            self.table = alias_table(sums)
        is_first_order = p == q == 1
        self.back = None if is_first_order else 1.0 / p
        self.out = None if is_first_order else 1.0 / q
        self.signatures = None if is_first_order else signatures(self.indptr, self.indices)

    def fill(self, first: int, tokens: Array) -> None:
        """Write walks number first, first + 1, ... into tokens (walks, length), of the dtype of `indices`.

        The kernel holds no lock: threads may fill different arrays at once.
        """
        if self.back is None or self.out is None:
            self._call(fill_walks, self.key, first, tokens)
        else:
            limits = coin_limits(self.back, self.out)
            self._call(fill_biased_walks, self.signatures, limits, self.back, self.out, self.key, first, tokens)

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


@njit(cache=True, nogil=True)
def _add_weights(indptr, weight, sums):  # type: ignore[no-untyped-def]
    for v in range(len(sums)):
        for e in range(indptr[v], indptr[v + 1]):
            sums[v] += weight[e]


def most_pairs(length: int, window: int, forward: bool) -> int:
    """Return how many pairs a walk of `length` nodes has at most."""
    near = min(window, length - 1)
    return (near * length - near * (near + 1) // 2) * (1 if forward else 2)


def expected_pairs(length: int, window: int, forward: bool, shrink: bool) -> float:
    """Return how many pairs a walk has on average, where it nowhere begins anew."""
    ways = 1 if forward else 2
    chance = [(window - distance + 1) / window if shrink else 1.0 for distance in range(1, window + 1)]
    return ways * sum(share * max(length - distance, 0) for distance, share in enumerate(chance, start=1))


def walk_pairs(tokens: Array, window: int, *, forward: bool, shrink: bool, key: int, first: int) -> tuple[Array, Array]:
    """Return the pairs of walks: centres and contexts, (n,) each, of the dtype of `tokens`.

    Args:
        tokens: (walks, length), as `Walks.fill` writes them.
        window: a pair's nodes are 1 to `window` steps apart.
        forward: contexts come after the centre only; else before it as well.
        shrink: every centre draws a window of its own from 1..window, as in word2vec: near contexts are taken more
            often; else all within the window.
        key: of those draws.
        first: number of the first walk.
    """
    room = len(tokens) * most_pairs(tokens.shape[1], window, forward)
    centres, contexts = np.empty(room, tokens.dtype), np.empty(room, tokens.dtype)
    count = fill_pairs(tokens, window, forward, shrink, key, first, centres, contexts)
    return centres[:count], contexts[:count]


@njit(cache=True, nogil=True)
def fill_pairs(tokens, window, forward, shrink, key, first, centres, contexts):  # type: ignore[no-untyped-def]
    """Do what `walk_pairs` does, into arrays with room for `most_pairs` of every walk; return their number."""
    length = tokens.shape[1]
    n = 0
    for row in range(len(tokens)):
        state = stream(key, first + row)
        begin = 0  # of the walk that the centre is on
        for i in range(length):
            node = tokens[row, i]
            if node < 0:
                node, begin = ~node, i
            reach = window
            if shrink:
                state += STEP
                reach = 1 + below(state, window)
            if not forward:
                for j in range(max(begin, i - reach), i):
                    centres[n] = node
                    contexts[n] = tokens[row, j] if tokens[row, j] >= 0 else ~tokens[row, j]
                    n += 1
            for j in range(i + 1, min(i + reach + 1, length)):
                if tokens[row, j] < 0:
                    break
                centres[n] = node
                contexts[n] = tokens[row, j]
                n += 1
    return n
