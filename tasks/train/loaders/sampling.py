"""Neighbour sampling over memory-mapped CSC arrays, in numba.

All randomness is by counter: what a call draws depends on its key and on node positions only, never on what was drawn
before. Kernels release the GIL, so that the next batch is sampled while the present one is computed. The passes stand
apart (positions, then ids, then local numbers) because each is a run of independent loads, which the processor
overlaps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.ingest.counter_random import below, bits, permute

Array = NDArray[Any]

# Floyd's algorithm compares each draw with those before: quadratic in the fan-out. Above this one scan of the
# neighbourhood is cheaper. Measured on Zen 5, November 2026: equal at about 60 of 500 neighbours.
_FLOYD_LIMIT = 64
_ALL = 1 << 62


@njit(cache=True, nogil=True)
def count_neighbors(indptr, nodes, fanout, counts, degree):  # type: ignore[no-untyped-def]
    """Fill counts (n + 1,) with the running sum of min(in-degree, fanout), and degree (n,); return the total."""
    counts[0] = 0
    for i in range(len(nodes)):
        d = indptr[nodes[i] + 1] - indptr[nodes[i]]
        degree[i] = d
        counts[i + 1] = counts[i] + min(d, fanout)
    return counts[len(nodes)]


@njit(cache=True, nogil=True)
def choose_positions(indptr, nodes, fanout, key, counts, positions):  # type: ignore[no-untyped-def]
    """Choose min(in-degree, fanout) different in-edges of each node, uniformly; write their CSC positions."""
    for i in range(len(nodes)):
        low = indptr[nodes[i]]
        d = indptr[nodes[i] + 1] - low
        w = counts[i]
        if d <= fanout:
            for j in range(d):
                positions[w + j] = low + j
        elif fanout <= _FLOYD_LIMIT:
            first = w
            for j in range(d - fanout, d):  # Floyd: j takes its own place where the draw is taken already
                p = low + below(key, i, j, j + 1)
                for q in range(first, w):
                    if positions[q] == p:
                        p = low + j
                        break
                positions[w] = p
                w += 1
        else:
            left = fanout
            for j in range(d):  # Knuth's selection sampling
                if below(key, i, j, d - j) < left:
                    positions[w] = low + j
                    w += 1
                    left -= 1


@njit(cache=True, nogil=True)
def gather_ids(indices, positions, out):  # type: ignore[no-untyped-def]
    """Fill out (m,) with indices[positions]."""
    for e in range(len(positions)):
        out[e] = indices[positions[e]]


@njit(cache=True, nogil=True)
def relabel(ids, nodes, num_nodes, table, stamp):  # type: ignore[no-untyped-def]
    """Replace ids by local numbers in place; append new ids to nodes; return how many nodes there are then.

    table (N,) int64 holds stamp << 32 | local number. A stamp is used once, so that the table is never cleared.
    """
    high = np.int64(stamp) << np.int64(32)
    for e in range(len(ids)):
        v = ids[e]
        entry = table[v]
        if entry >> np.int64(32) != stamp:
            entry = high | np.int64(num_nodes)
            table[v] = entry
            nodes[num_nodes] = v
            num_nodes += 1
        ids[e] = entry & np.int64(0xFFFFFFFF)
    return num_nodes


@njit(cache=True, nogil=True)
def _slot(keys, pair):  # type: ignore[no-untyped-def]
    """Return where `pair` stands in an open-addressing table of a power-of-two size, or the free slot for it."""
    mask = np.int64(len(keys) - 1)
    at = np.int64(bits(0, 0, pair)) & mask
    while keys[at] != -1 and keys[at] != pair:
        at = (at + 1) & mask
    return at


@njit(cache=True, nogil=True)
def hash_pairs(source, target, keys):  # type: ignore[no-untyped-def]
    """Put local pairs and their reverses into `keys` (filled with -1, a power of two, at least 4 per pair)."""
    for i in range(len(source)):
        for pair in (
            source[i] << np.int64(32) | target[i],
            target[i] << np.int64(32) | source[i],
        ):
            keys[_slot(keys, pair)] = pair


@njit(cache=True, nogil=True)
def drop_pairs(counts, sources, positions, num_seeds, keys):  # type: ignore[no-untyped-def]
    """Remove the hashed pairs' edges from those between seeds, compacting in place; return how many edges stay."""
    w = 0
    start = counts[0]
    for i in range(len(counts) - 1):
        stop = counts[i + 1]
        for e in range(start, stop):
            if i < num_seeds and sources[e] < num_seeds:
                pair = sources[e] << np.int64(32) | np.int64(i)
                if keys[_slot(keys, pair)] == pair:
                    continue
            sources[w] = sources[e]
            positions[w] = positions[e]
            w += 1
        start = stop
        counts[i + 1] = w
    return w


@njit(cache=True, nogil=True)
def is_edge(indptr, indices, source, target):  # type: ignore[no-untyped-def]
    """Whether source -> target is in the CSC (binary search: sources ascend within a node)."""
    low, high = indptr[target], indptr[target + 1]
    while low < high:
        middle = (low + high) // 2
        if indices[middle] < source:
            low = middle + 1
        else:
            high = middle
    return low < indptr[target + 1] and indices[low] == source


@njit(cache=True, nogil=True)
def draw_negatives(indptr, indices, key, tries, out):  # type: ignore[no-untyped-def]
    """Fill out (n, 2) with uniform pairs that are neither edges nor loops (a last try is taken as it is)."""
    num_nodes = len(indptr) - 1
    for i in range(len(out)):
        for t in range(tries):
            out[i, 0] = below(key, i, 2 * t, num_nodes)
            out[i, 1] = below(key, i, 2 * t + 1, num_nodes)
            if out[i, 0] != out[i, 1] and not is_edge(indptr, indices, out[i, 0], out[i, 1]):
                break


@njit(cache=True, nogil=True)
def shuffled(n, key, positions):  # type: ignore[no-untyped-def]
    """Return where each of `positions` (m,) stands in a random order of 0..n-1, without making the whole order."""
    out = np.empty(len(positions), np.int64)
    for i in range(len(positions)):
        out[i] = permute(key, n, positions[i])
    return out


def derive_key(*parts: int) -> int:
    """Return a 63-bit key that depends on every one of `parts` (seed, epoch, step, rank, purpose, ...)."""
    key = 0
    for number, part in enumerate(parts):
        key = int(bits(key, number, part)) >> 1
    return key


@dataclass
class Sample:
    """One sampled layer, in local numbers."""

    indptr: Array
    """int64 (num_dst + 1,)."""
    indices: Array
    """int64 (E,)."""
    positions: Array
    """int64 (E,): CSC position of each edge."""
    degree: Array
    """float32 (num_src,): in-degrees in the whole graph."""


@dataclass
class NeighborSampler:
    """Samples blocks of edges around seeds. Holds an 8-byte table entry for each node of the graph; one thread each."""

    indptr: Array
    indices: Array
    fanouts: tuple[int, ...]
    """From the seeds outwards; -1: all neighbours."""
    _table: Array = field(init=False, repr=False)
    _stamp: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        # asarray: numba compiles for plain arrays, not for np.memmap
        self.indptr, self.indices = np.asarray(self.indptr), np.asarray(self.indices)
        self._table = np.full(len(self.indptr) - 1, -1, np.int64)

    def number(self, ids: Array) -> tuple[Array, Array]:
        """Return local numbers of `ids` (int64, same shape) and the distinct ids in order of first appearance."""
        local = ids.astype(np.int64, copy=True).reshape(-1)
        nodes = np.empty(min(len(local), len(self._table)), np.int64)
        self._next_stamp()
        count = relabel(local, nodes, 0, self._table, self._stamp)
        return local.reshape(ids.shape), nodes[:count]

    def sample(self, seeds: Array, key: int, excluded: Array | None = None) -> tuple[Array, list[Sample]]:
        """Sample around distinct seeds.

        Args:
            seeds: int64 (n,) distinct node ids.
            key: what to draw; the same key draws the same.
            excluded: int64 (2, m) pairs in seed numbering whose edges, both ways, carry no messages.

        Returns:
            Node ids (num_src,) of the outermost layer, seeds first, and the layers from the outermost to the seeds.
        """
        nodes = seeds.astype(np.int64)
        self._next_stamp()
        relabel(nodes.copy(), np.empty_like(nodes), 0, self._table, self._stamp)
        keys = None if excluded is None else _hash(excluded)
        layers: list[Sample] = []
        for number, fanout in enumerate(self.fanouts):
            fanout = _ALL if fanout < 0 else fanout
            num_dst = len(nodes)
            counts, degree = np.empty(num_dst + 1, np.int64), np.empty(num_dst, np.float32)
            total = count_neighbors(self.indptr, nodes, fanout, counts, degree)
            positions, sources = np.empty(total, np.int64), np.empty(total, np.int64)
            choose_positions(self.indptr, nodes, fanout, derive_key(key, number), counts, positions)
            gather_ids(self.indices, positions, sources)
            grown = np.empty(min(num_dst + total, len(self._table)), np.int64)
            grown[:num_dst] = nodes
            nodes = grown[: relabel(sources, grown, num_dst, self._table, self._stamp)]
            if keys is not None:
                total = drop_pairs(counts, sources, positions, len(seeds), keys)
            layers.append(Sample(counts, sources[:total], positions[:total], degree))
        # A layer's sources are the next one's destinations, whose degrees are counted there.
        outer = (self.indptr[nodes + 1] - self.indptr[nodes]).astype(np.float32)
        for inner, degree in zip(layers, [layer.degree for layer in layers[1:]] + [outer], strict=True):
            inner.degree = degree
        return nodes, layers[::-1]

    def _next_stamp(self) -> None:
        self._stamp += 1
        if self._stamp == 1 << 31:  # years of batches; then start over
            self._table.fill(-1)
            self._stamp = 1


def _hash(pairs: Array) -> Array:
    size = 1 << max(4, int(np.ceil(np.log2(max(1, 4 * pairs.shape[1])))))
    keys = np.full(size, -1, np.int64)
    hash_pairs(np.ascontiguousarray(pairs[0], np.int64), np.ascontiguousarray(pairs[1], np.int64), keys)
    return keys
