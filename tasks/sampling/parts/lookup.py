"""Whether edges are in a graph in parts: the rank that holds an edge's target is asked."""

from __future__ import annotations

import numpy as np
from numba import njit

from tasks.arrays import offsets
from tasks.sampling.neighborhoods.lookup import find_edge
from tasks.sampling.parts.exchange import Array
from tasks.sampling.parts.graph import PartGraph
from tasks.sampling.parts.kernels import count_owners, deal_out


def count_edges(graph: PartGraph, pairs: Array) -> Array:
    """Return how many edges the graph has from pairs[i, 0] to pairs[i, 1]: int32 (n,); all ranks together."""
    where = graph.first, graph.end, graph.bounds
    exchange = graph.exchange
    targets = np.ascontiguousarray(pairs[:, 1])
    counts = np.zeros(exchange.world_size, np.int64)
    own = np.empty(count_owners(targets, *where, counts), pairs.dtype)
    message, place = np.empty(int(counts.sum()), pairs.dtype), np.empty(len(pairs), np.int64)
    deal_out(targets, *where, offsets(counts)[:-1], own, message, place)
    here = place >= 0
    question = np.empty((len(message), 2), pairs.dtype)
    question[~place[~here]] = pairs[~here]
    back = exchange.counts(counts[:, None])[:, 0].tolist()
    asked = exchange.send(question, counts.tolist(), back)
    answer = exchange.send(_count(graph, asked), back, counts.tolist())
    found = np.empty(len(pairs), np.int32)
    found[here], found[~here] = _count(graph, pairs[here]), answer[~place[~here]]
    return found


def _count(graph: PartGraph, pairs: Array) -> Array:
    counts = np.zeros(len(pairs), np.int32)
    _count_parallel(graph["csc_indptr"], np.asarray(graph["csc_indices"]), graph.first, pairs, counts)
    return counts


@njit(cache=True, nogil=True)
def _count_parallel(indptr, indices, first, pairs, counts):  # type: ignore[no-untyped-def]
    for i in range(len(pairs)):
        source, target = pairs[i, 0], pairs[i, 1] - first
        at = find_edge(indptr, indices, source, target)
        if at >= 0:
            while at < indptr[target + 1] and indices[at] == source:
                counts[i] += 1
                at += 1
