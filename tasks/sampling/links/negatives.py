"""Drawn negatives of link tasks.

| `train.loader.negatives` | a negative of the positive u -> v |
|---|---|
| uniform | u' -> v', both uniform |
| per_source | u -> v', v' uniform |
| degree | u -> v', v' by in-degree^0.75: popular nodes are among the negatives nearly as often as the positives |
| in_batch | u -> v', v' the target of another positive of the batch, uniform over those |

The power is that of word2vec's noise (arXiv:1310.4546, section 2.2), which LINE takes over (arXiv:1503.03578, section
4.1.2).

Ends are nodes that those of a training edge could be (`tasks/edge_ends.py`): where users buy items u' is a user, v' an
item.

A draw is rejected, and the next one taken, where it is a loop or an edge of the graph that messages pass along: that
holds the training edges, and their reverses where preprocess symmetrised. in_batch takes its last 8 tries from all
such nodes: every target of the batch may be the source's own. After 16 tries the last draw stays, which matters
only for a source that is joined to most of the graph. Edges of the validation and test splits are not known to
training: one of them can be drawn as a negative, about as often as the graph is dense. To avoid them would be to tell
the model where they are. (Negatives to evaluate against avoid the edges of every split: `tasks/negatives.py`.)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit

from tasks.arrays import Array
from tasks.counter_random import below, bits
from tasks.edge_ends import EdgeEnds, end_at, ends_of, never_joined
from tasks.sampling.neighborhoods.lookup import find_edge, frozen
from tasks.sampling.walks.alias import alias_table, chosen
from tasks.storage.graph_store import GraphStore

# A draw hits an edge with a probability equal to the graph's density, so that more tries hardly ever matter.
TRIES = 16
_TRIES_IN_BATCH = 8
DEGREE_POWER = 0.75


class NegativeSampler:
    """Draws negatives of batches of positives."""

    def __init__(self, store: GraphStore, kind: str, num_negatives: int) -> None:
        """Prepare to draw `num_negatives` by `kind` for each positive; `degree` holds 8 bytes a node.

        Where the graph says what ends can be, these are held too: 4 to 12 bytes a node.
        """
        self.indptr, self.indices = frozen(store["csc_indptr"]), frozen(store["csc_indices"])
        self.kind = kind
        self.num_negatives = num_negatives
        self.ends = ends_of(store.get("edge_role"), store.get("edge_side"))
        self._table = degree_table(np.diff(self.indptr), self.ends) if kind == "degree" else np.empty(0, np.uint64)

    def draw_all(self, batches: Sequence[tuple[Array, int]]) -> list[Array]:
        """Return the negatives of each batch of positives, drawn under a key, see `draw`."""
        return [self.draw(positive, key) for positive, key in batches]

    def draw(self, positive: Array, key: int) -> Array:
        """Return negatives, int64 (n * num_negatives, 2); those of positive i are rows i * num_negatives and on.

        `positive` int64 (n, 2). Where a batch has one positive only, in_batch takes uniform targets.
        """
        negative = np.empty((len(positive) * self.num_negatives, 2), np.int64)
        if self.kind == "uniform":
            draw_negatives(self.indptr, self.indices, self.ends, key, TRIES, negative)
        else:
            others = positive[:, 1] if self.kind == "in_batch" and len(positive) > 1 else positive[:0, 1]
            others = np.ascontiguousarray(others)
            draw_targets(self.indptr, self.indices, self.ends, positive, others, self._table, key, negative)
        return negative


def degree_table(degrees: Array, ends: EdgeEnds) -> Array:
    """Return the alias table of targets by in-degree, that of all nodes (N,); empty where all are alike, 0."""
    weights = degrees[ends.targets] if len(ends.targets) else degrees
    return alias_table(weights**DEGREE_POWER) if weights.any() else np.empty(0, np.uint64)


@njit(inline="always")
def draw_pair(ends, key, row, t, num_nodes):  # type: ignore[no-untyped-def]
    """Return try t of negative `row`: both ends uniform."""
    num_sources, num_targets = len(ends.sources), len(ends.targets)
    source = below(key, row, 2 * t, num_sources if num_sources else num_nodes)
    target = below(key, row, 2 * t + 1, num_targets if num_targets else num_nodes)
    return end_at(ends.sources, source), end_at(ends.targets, target)


@njit(inline="always")
def draw_target(ends, others, table, key, row, i, t, num_nodes):  # type: ignore[no-untyped-def]
    """Return the target of try t of negative `row`, of positive i; see `draw_targets`."""
    if len(others) and t < _TRIES_IN_BATCH:
        place = below(key, row, 2 * t, len(others) - 1)
        return np.int64(others[place + (place >= i)])
    num_targets = len(ends.targets)
    target = below(key, row, 2 * t, num_targets if num_targets else num_nodes)
    if len(table):
        target = chosen(table[target], target, bits(key, row, 2 * t + 1))
    return end_at(ends.targets, target)


@njit(cache=True, nogil=True)
def draw_negatives(indptr, indices, ends, key, tries, out):  # type: ignore[no-untyped-def]
    """Fill out (n, 2) with uniform pairs that could be edges and are none (a last try is taken as it is)."""
    num_nodes = len(indptr) - 1
    for i in range(len(out)):
        for t in range(tries):
            u, v = draw_pair(ends, key, i, t, num_nodes)
            out[i, 0], out[i, 1] = u, v
            if not never_joined(ends.side, u, v) and find_edge(indptr, indices, u, v) < 0:
                break


@njit(cache=True, nogil=True)
def draw_targets(indptr, indices, ends, positive, others, table, key, out):  # type: ignore[no-untyped-def]
    """Fill out (n * k, 2) with each positive's source, k times, and drawn targets.

    Targets are drawn from `others` (n,) but the positive's own place, if there are any, in the first tries; else by the
    alias table, if there is one; else uniformly.
    """
    num_nodes = len(indptr) - 1
    repeats = len(out) // max(1, len(positive))
    for row in range(len(out)):
        i = row // repeats
        source, target = positive[i, 0], np.int64(0)
        for t in range(TRIES):
            target = draw_target(ends, others, table, key, row, i, t, num_nodes)
            if not never_joined(ends.side, source, target) and find_edge(indptr, indices, source, target) < 0:
                break
        out[row, 0], out[row, 1] = source, target
