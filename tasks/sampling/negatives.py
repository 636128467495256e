"""Drawn negatives of link tasks: pairs of nodes, both uniform over the nodes that the ends of a training edge could be.

Where users buy items one end is a user and the other an item (`tasks/edge_ends.py`). A draw is rejected, and the next
one taken, where it is a loop or an edge of the graph that messages pass along: that holds the training edges, and their
reverses where preprocess symmetrised; edges of context, which are no answer, refuse nothing. After 16 tries the last
draw stays, which matters only for a source that is joined to most of the graph. Edges of the validation and test splits
are not known to training: one of them can be drawn as a negative, about as often as the graph is dense. To avoid them
would be to tell the model where they are. (Negatives to evaluate against avoid the edges of every split:
`tasks/negatives.py`.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.counter_random import below
from tasks.edge_ends import end_at, ends_of, never_joined
from tasks.sampling.neighborhoods.in_edges import find_edge, frozen
from tasks.sampling.neighborhoods.relabel import asked_edges, is_asked
from tasks.storage.graph_store import GraphStore

# A draw hits an edge with a probability equal to the graph's density, so that more tries hardly ever matter.
TRIES = 16


class NegativeSampler:
    """Draws negatives of batches of positives."""

    def __init__(self, store: GraphStore, num_negatives: int) -> None:
        """Prepare to draw so many for each positive; what ends can be, where the graph says it, takes 4 to 12 bytes a
        node."""
        self.indptr, self.indices = frozen(store["csc_indptr"]), frozen(store["csc_indices"])
        self.num_negatives = num_negatives
        self.ends = ends_of(store.get("edge_role"), store.get("edge_side"))
        self.asked = asked_edges(store)

    def draw_all(self, batches: Sequence[tuple[Array, int]]) -> list[Array]:
        """Return the negatives of each batch of positives, drawn under a key, see `draw`."""
        return [self.draw(positive, key) for positive, key in batches]

    def draw(self, positive: Array, key: int) -> Array:
        """Return negatives of positives int64 (n, 2): int64 (n * num_negatives, 2)."""
        negative = np.empty((len(positive) * self.num_negatives, 2), np.int64)
        draw_negatives(self.indptr, self.indices, self.ends, key, TRIES, negative, self.asked)
        return negative


@njit(inline="always")
def draw_pair(ends, key, row, t, num_nodes):  # type: ignore[no-untyped-def]
    """Return try t of negative `row`: both ends uniform."""
    num_sources, num_targets = len(ends.sources), len(ends.targets)
    source = below(key, row, 2 * t, num_sources if num_sources else num_nodes)
    target = below(key, row, 2 * t + 1, num_targets if num_targets else num_nodes)
    return end_at(ends.sources, source), end_at(ends.targets, target)


@njit(inline="always")
def _is_edge(indptr, indices, u, v, asked):  # type: ignore[no-untyped-def]
    """Whether an edge u -> v is one of those that are predicted; parallel ones are neighbours."""
    at = find_edge(indptr, indices, u, v)
    joined = False
    while at >= 0 and at < indptr[v + 1] and indices[at] == u and not joined:
        joined = is_asked(asked, at)
        at += 1
    return joined


@njit(cache=True, nogil=True)
def draw_negatives(indptr, indices, ends, key, tries, out, asked):  # type: ignore[no-untyped-def]
    """Fill out (n, 2) with uniform pairs that could be edges and are none (a last try is taken as it is)."""
    num_nodes = len(indptr) - 1
    for i in range(len(out)):
        for t in range(tries):
            u, v = draw_pair(ends, key, i, t, num_nodes)
            out[i, 0], out[i, 1] = u, v
            if not never_joined(ends.side, u, v) and not _is_edge(indptr, indices, u, v, asked):
                break
