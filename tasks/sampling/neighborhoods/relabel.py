"""Local numbers for the nodes of a batch, and edges that carry no messages in it.

`table` int32 (N,) holds base + local number for each node of the present batch, and less than `base` for all others.
The next batch's base lies above all numbers given so far, so that the table is cleared only when int32 runs out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.errors import DataError
from models.kernels.memory import recycled
from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.pair_set import FREE, key_table, slot
from tasks.sampling.neighborhoods.in_edges import Sample, find_edge, frozen
from tasks.storage.graph_facts import asked_relations
from tasks.storage.graph_store import GraphStore

Array = NDArray[Any]
_LAST_BASE = 1 << 30  # the table starts over above it; a batch has room for as many nodes


class Numbering:
    """Local numbers of one batch's nodes at a time. Memory: 4 bytes a node of the graph, as far as batches reach."""

    def __init__(self, num_nodes: int, dtype: Any) -> None:
        """`dtype` is that of ids."""
        self.table = np.zeros(num_nodes + 1, np.int32)  # the last entry is of no node
        self.nodes = np.empty(num_nodes + 1, dtype)  # touched as far as a batch reaches
        self.base = 1
        self.count = 0

    def start(self) -> None:
        """Begin a batch without nodes."""
        self.base += self.count
        self.count = 0
        if self.base > _LAST_BASE:  # after some ten thousand batches
            self.table.fill(0)
            self.base = 1

    def number(self, ids: Array) -> Array:
        """Return local numbers of `ids`, int32 (m,), new nodes at the end."""
        self.check_room(len(ids))
        local = recycled(len(ids), np.int32)
        self.count = relabel(ids, local, self.nodes, self.count, self.table, self.base)
        return local

    def number_all(self, ids: Array) -> tuple[Array, Array]:
        """Begin a batch; return the numbers of `ids` (int64, same shape) and the distinct ids as they first appear."""
        self.start()
        local = self.number(np.ascontiguousarray(ids, self.nodes.dtype).reshape(-1))
        return local.astype(np.int64).reshape(ids.shape), self.nodes[: self.count].copy()

    def check_room(self, count: int) -> None:
        """Raise DataError where so many more ids may be more than a batch can number."""
        if self.count + count >= _LAST_BASE:
            raise DataError(
                f"a batch reaches {self.count + count:,} edges; lower train.loader.batch_size or train.loader.fanout"
            )


@njit(cache=True, nogil=True)
def relabel(ids, local, nodes, num_nodes, table, base):  # type: ignore[no-untyped-def]
    """Give each of `ids` (m,) its local number; return how many nodes there are then.

    New ids are appended to `nodes`, which has `num_nodes` entries before and room for one more than there will be.
    Nothing branches: whether an id is new is as good as random.
    """
    count = np.int32(num_nodes)
    base = np.int32(base)
    for e in range(len(ids)):
        if e + AHEAD < len(ids):
            prefetch_item(table, np.int64(ids[e + AHEAD]))
        v = ids[e]
        number = np.int32(table[v] - base)
        new = number < 0
        number = count if new else number
        table[v] = np.int32(base + number)
        nodes[count] = v
        count = np.int32(count + np.int32(new))
        local[e] = number
    return np.int64(count)


def hash_pairs(seeds: NDArray[np.integer], pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a hash table of edges between seeds (n,), both ways of each pair, int64 (2, m) in seed numbering."""
    keys = key_table(2 * pairs.shape[1])
    for source, target in (pairs, pairs[::-1]):
        _insert(seeds[source].astype(np.int64) * len(seeds) + target, keys)
    return keys


class AskedEdges(NamedTuple):
    """Which edges are of the relations that links are predicted in; all, where both are empty. Fit for numba."""

    edge_type: NDArray[np.integer]
    """int16 (E,), by CSC position."""
    is_asked: NDArray[np.bool_]
    """bool (R,), by relation."""


ALL_ASKED = AskedEdges(np.empty(0, np.int16), np.empty(0, np.bool_))


def asked_edges(store: GraphStore) -> AskedEdges:
    """Return which edges of a link task's graph are of what is predicted."""
    relations = asked_relations(store.manifest)
    if not relations:
        return ALL_ASKED
    is_asked = np.zeros(len(store.manifest.edge_types), np.bool_)
    is_asked[relations] = True
    return AskedEdges(frozen(store["edge_type"]), is_asked)


def leave_out(layer: Sample, num_seeds: int, keys: NDArray[np.int64], asked: AskedEdges = ALL_ASKED) -> None:
    """Remove the hashed edges from a layer whose first destinations are the seeds; its degrees stay."""
    weight = np.empty(0, np.float32) if layer.weight is None else layer.weight
    assert layer.positions is not None, "positions are dropped afterwards"
    total = drop_edges(layer.indptr, layer.indices, layer.positions, weight, num_seeds, keys, asked)
    layer.indices, layer.positions = layer.indices[:total], layer.positions[:total]
    layer.weight = None if layer.weight is None else layer.weight[:total]


@njit(cache=True, nogil=True)
def _insert(added, keys):  # type: ignore[no-untyped-def]
    for key in added:
        keys[slot(key, keys)] = key


@njit(inline="always")
def is_asked(asked, position):  # type: ignore[no-untyped-def]
    """Whether the edge at a CSC position is one that is predicted."""
    return len(asked.is_asked) == 0 or asked.is_asked[asked.edge_type[position]]


@njit(cache=True, nogil=True)
def drop_edges(counts, ids, positions, weight, num_seeds, keys, asked):  # type: ignore[no-untyped-def]
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
                if keys[slot(key, keys)] == key and is_asked(asked, positions[e]):
                    continue
            ids[w], positions[w] = ids[e], positions[e]
            if len(weight):
                weight[w] = weight[e]
            w += 1
        first = last
        counts[i + 1] = w
    return w


@njit(cache=True, nogil=True)
def lower_degrees(indptr, indices, seeds, keys, degree, asked):  # type: ignore[no-untyped-def]
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
            degree[i] -= is_asked(asked, at)
            at += 1
