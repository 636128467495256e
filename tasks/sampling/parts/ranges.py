"""What a rank's own range of nodes needs of others, where all of it is computed: its halo, in ascending order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from tasks.sampling.parts.exchange import Array, Exchange


@dataclass(frozen=True)
class Ranges:
    """Which rank computes which nodes: rank r those from bounds[r] to bounds[r + 1] - 1."""

    bounds: Array
    """int64 (world_size + 1,)."""
    exchange: Exchange
    """Used by the thread that computes."""

    @property
    def own(self) -> tuple[int, int]:
        """First node of this rank, and the one after its last."""
        rank = self.exchange.rank
        return int(self.bounds[rank]), int(self.bounds[rank + 1])

    def fetch(self, table: Array, nodes: Array) -> Array:
        """Return rows of nodes, integer (n,) ascending and distinct, of any rank; all ranks together.

        `table`: this rank's rows (own nodes, ...).
        """
        counts = np.diff(np.searchsorted(nodes, self.bounds))
        back = self.exchange.counts(counts[:, None])[:, 0].tolist()
        asked = self.exchange.send(np.ascontiguousarray(nodes), counts.tolist(), back)
        rows = np.ascontiguousarray(table[asked - self.own[0]])
        return self.exchange.send(rows, back, counts.tolist())

    def fetch_any(self, table: Array, nodes: Array) -> Array:
        """Return rows of nodes in any order, (n,), some of which may be the same."""
        distinct, places = np.unique(nodes, return_inverse=True)
        return self.fetch(table, distinct)[places.reshape(-1)]

    def to_main(self, rows: Array) -> Array:
        """Return all ranks' rows (n, ...), end to end, on rank 0, and no row on the others; all ranks together."""
        exchange = self.exchange
        counts = [len(rows), *[0] * (exchange.world_size - 1)]
        back = exchange.counts(np.asarray(counts)[:, None])[:, 0].tolist()
        return exchange.send(np.ascontiguousarray(rows), counts, back)


def find_sources(indices: Array, own: tuple[int, int], num_nodes: int, local: Array) -> Array:
    """Return the sources outside of `own`, ascending; fill `local` int32 (E,) with places in [own nodes, those].

    Memory: 4 bytes a node of the whole graph, while this runs.
    """
    first, end = own
    place = np.zeros(num_nodes, np.int32)
    _mark(indices, first, end, place)
    others = np.flatnonzero(place).astype(indices.dtype)
    place[others] = end - first + np.arange(len(others))
    _renumber(indices, first, end, place, local)
    return others


@njit(cache=True, nogil=True)
def _mark(indices, first, end, place):  # type: ignore[no-untyped-def]
    for e in range(len(indices)):
        if indices[e] < first or indices[e] >= end:
            place[indices[e]] = 1


@njit(cache=True, nogil=True)
def _renumber(indices, first, end, place, local):  # type: ignore[no-untyped-def]
    for e in range(len(indices)):
        v = np.int64(indices[e])
        local[e] = v - first if first <= v < end else place[v]
