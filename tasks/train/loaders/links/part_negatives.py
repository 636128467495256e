"""Drawn negatives of link tasks over a graph in parts: draws of all batches are looked up together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from tasks.edge_ends import are_never_joined, ends_of
from tasks.sampling.links.negatives import TRIES, degree_table, draw_pair, draw_target
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.lookup import count_edges
from tasks.train.loaders.base import Array

_ENDS = ("edge_role", "edge_side")


class PartNegatives:
    """Draws what `NegativeSampler` draws; all ranks call it together, with equally many batches, from one thread."""

    def __init__(self, graph: PartGraph, kind: str, num_negatives: int) -> None:
        """Prepare to draw; `degree` holds 8 bytes a node of the whole graph, and what ends can be 4 to 12."""
        self.graph, self.kind, self.num_negatives = graph, kind, num_negatives
        gathered = [None if graph.get(name) is None else self._gather(graph[name]) for name in _ENDS]
        self.ends = ends_of(*gathered)
        self._table = np.empty(0, np.uint64)
        if kind == "degree":
            self._table = degree_table(self._gather(np.diff(graph["csc_indptr"])), self.ends)

    def _gather(self, rows: Array) -> Array:
        """Return a node array of the whole graph; `rows`: this machine's."""
        first, end = self.graph.own
        return self.graph.exchange.gather(np.asarray(rows[first - self.graph.first : end - self.graph.first]))

    def draw_all(self, batches: Sequence[tuple[Array, int]]) -> list[Array]:
        """Return the negatives of each batch of positives, int64 (n, 2), drawn under a key."""
        drawn = [np.empty((len(positive) * self.num_negatives, 2), np.int64) for positive, _ in batches]
        pending = [np.arange(len(pairs)) for pairs in drawn]
        for number in range(TRIES):
            for (positive, key), rows, out in zip(batches, pending, drawn, strict=True):
                self._propose(positive, key, number, rows, out)
            asked = np.concatenate([out[rows] for rows, out in zip(pending, drawn, strict=True)])
            edges = count_edges(self.graph, asked.astype(self.graph["csc_indices"].dtype)) > 0
            refused = edges | are_never_joined(asked[:, 0], asked[:, 1], self.ends.side)
            ends = np.cumsum([len(rows) for rows in pending])[:-1]
            pending = [rows[again] for rows, again in zip(pending, np.split(refused, ends), strict=True)]
            if not self.graph.exchange.largest(sum(map(len, pending))):
                break
        return drawn

    def _propose(self, positive: Array, key: int, number: int, rows: Array, out: Array) -> None:
        """Fill rows of `out` with what is drawn in try `number`."""
        num_nodes = self.graph.manifest.num_nodes
        if self.kind == "uniform":
            _propose_pairs(self.ends, key, number, num_nodes, rows, out)
        else:
            others = positive[:, 1] if self.kind == "in_batch" and len(positive) > 1 else positive[:0, 1]
            others = np.ascontiguousarray(others)
            _propose_targets(self.ends, positive, others, self._table, key, number, num_nodes, rows, out)


@njit(cache=True, nogil=True)
def _propose_pairs(ends, key, number, num_nodes, rows, out):  # type: ignore[no-untyped-def]
    for row in rows:
        out[row, 0], out[row, 1] = draw_pair(ends, key, row, number, num_nodes)


@njit(cache=True, nogil=True)
def _propose_targets(ends, positive, others, table, key, number, num_nodes, rows, out):  # type: ignore[no-untyped-def]
    repeats = len(out) // max(1, len(positive))
    for row in rows:
        out[row, 0] = positive[row // repeats, 0]
        out[row, 1] = draw_target(ends, others, table, key, row, row // repeats, number, num_nodes)
