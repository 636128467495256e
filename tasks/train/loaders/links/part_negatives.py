"""Drawn negatives of link tasks over a graph in parts: draws of all batches are looked up together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from tasks.edge_ends import are_never_joined, ends_of
from tasks.sampling.links.negatives import TRIES, draw_pair
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.lookup import count_edges
from tasks.train.loaders.base import Array


class PartNegatives:
    """Draws what `NegativeSampler` draws; all ranks call it together, with equally many batches, from one thread."""

    def __init__(self, graph: PartGraph, num_negatives: int) -> None:
        self.graph, self.num_negatives = graph, num_negatives
        first, end = (node - graph.first for node in graph.own)
        of_ends = [graph.get(name) for name in ("edge_role", "edge_side")]
        self.ends = ends_of(*(None if rows is None else graph.exchange.gather(rows[first:end]) for rows in of_ends))

    def draw_all(self, batches: Sequence[tuple[Array, int]]) -> list[Array]:
        """Return the negatives of each batch of positives, int64 (n, 2), drawn under a key."""
        drawn = [np.empty((len(positive) * self.num_negatives, 2), np.int64) for positive, _ in batches]
        pending = [np.arange(len(pairs)) for pairs in drawn]
        num_nodes = self.graph.manifest.num_nodes
        for number in range(TRIES):
            for (_, key), rows, out in zip(batches, pending, drawn, strict=True):
                _propose(self.ends, key, number, num_nodes, rows, out)
            asked = np.concatenate([out[rows] for rows, out in zip(pending, drawn, strict=True)])
            edges = count_edges(self.graph, asked.astype(self.graph["csc_indices"].dtype)) > 0
            refused = edges | are_never_joined(asked[:, 0], asked[:, 1], self.ends.side)
            ends = np.cumsum([len(rows) for rows in pending])[:-1]
            pending = [rows[again] for rows, again in zip(pending, np.split(refused, ends), strict=True)]
            if not self.graph.exchange.largest(sum(map(len, pending))):
                break
        return drawn


@njit(cache=True, nogil=True)
def _propose(ends, key, number, num_nodes, rows, out):  # type: ignore[no-untyped-def]
    """Fill rows of `out` with what is drawn in try `number`."""
    for row in rows:
        out[row, 0], out[row, 1] = draw_pair(ends, key, row, number, num_nodes)
