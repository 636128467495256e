"""Edges that carry no messages in a batch: a link task's own positives, which would tell the model its answers."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.pair_set import FREE, key_table, slot
from tasks.sampling.neighborhoods.in_edges import Sample
from tasks.sampling.neighborhoods.lookup import find_edge


def hash_pairs(seeds: NDArray[np.integer], pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a hash table of edges between seeds (n,), both ways of each pair, int64 (2, m) in seed numbering."""
    keys = key_table(2 * pairs.shape[1])
    for source, target in (pairs, pairs[::-1]):
        _insert(seeds[source].astype(np.int64) * len(seeds) + target, keys)
    return keys


def leave_out(layer: Sample, num_seeds: int, keys: NDArray[np.int64]) -> None:
    """Remove the hashed edges from a layer whose first destinations are the seeds; its degrees stay."""
    weight = np.empty(0, np.float32) if layer.weight is None else layer.weight
    assert layer.positions is not None, "positions are dropped afterwards"
    total = drop_edges(layer.indptr, layer.indices, layer.positions, weight, num_seeds, keys)
    layer.indices, layer.positions = layer.indices[:total], layer.positions[:total]
    layer.weight = None if layer.weight is None else layer.weight[:total]


@njit(cache=True, nogil=True)
def _insert(added, keys):  # type: ignore[no-untyped-def]
    for key in added:
        keys[slot(key, keys)] = key


@njit(cache=True, nogil=True)
def drop_edges(counts, ids, positions, weight, num_seeds, keys):  # type: ignore[no-untyped-def]
    """Remove the hashed edges into the first `num_seeds` destinations, compacting in place.

    Edges are known by source id * num_seeds + destination's number. `weight` may be empty. Returns how many edges stay.
    """
    w = 0
    first = counts[0]
    for i in range(len(counts) - 1):
        last = counts[i + 1]
        for e in range(first, last):
            if i < num_seeds:
                key = np.int64(ids[e]) * num_seeds + i
                if keys[slot(key, keys)] == key:
                    continue
            ids[w], positions[w] = ids[e], positions[e]
            if len(weight):
                weight[w] = weight[e]
            w += 1
        first = last
        counts[i + 1] = w
    return w


@njit(cache=True, nogil=True)
def lower_degrees(indptr, indices, seeds, keys, degree):  # type: ignore[no-untyped-def]
    """Take the hashed edges that a graph has, parallel ones too, off `degree` (num_dst,), of which the first are seeds.

    Whether they were drawn or not: their number in the graph would tell that a positive is among a node's edges.
    """
    num_seeds = len(seeds)
    for key in keys:
        if key == FREE:
            continue
        source, i = key // num_seeds, key % num_seeds
        at = find_edge(indptr, indices, source, seeds[i])
        while at >= 0 and at < indptr[seeds[i] + 1] and indices[at] == source:
            degree[i] -= 1
            at += 1
