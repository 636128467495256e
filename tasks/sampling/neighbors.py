"""Neighbour sampling over memory-mapped CSC arrays.

All randomness is by counter: what a call draws depends on its key and on node ids only, never on what was drawn before.
Kernels release the GIL, and several threads may sample at once. Ids are int32 from end to end while they fit; local
numbers always are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.errors import DataError
from models.kernels.memory import recycled
from tasks.counter_random import below, bits, permute
from tasks.sampling import draws
from tasks.sampling.exclusion import drop_edges, hash_pairs, lower_degrees
from tasks.sampling.labor import draw_labor
from tasks.sampling.lookup import find_edge, frozen
from tasks.sampling.relabel import relabel
from tasks.sampling.weighted import draw_weighted, draw_with_chances, largest_weights

Array = NDArray[Any]
Method = Literal["uniform", "replace", "weighted", "labor"]

_ALL = 1 << 62
_LAST_BASE = 1 << 30  # the table starts over above it; a batch has room for as many nodes


@njit(cache=True, nogil=True)
def draw_negatives(indptr, indices, key, tries, out):  # type: ignore[no-untyped-def]
    """Fill out (n, 2) with uniform pairs that are neither edges nor loops (a last try is taken as it is)."""
    num_nodes = len(indptr) - 1
    for i in range(len(out)):
        for t in range(tries):
            out[i, 0] = below(key, i, 2 * t, num_nodes)
            out[i, 1] = below(key, i, 2 * t + 1, num_nodes)
            if out[i, 0] != out[i, 1] and find_edge(indptr, indices, out[i, 0], out[i, 1]) < 0:
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
    """One sampled layer."""

    indptr: Array
    """int64 (num_dst + 1,)."""
    indices: Array
    """int32 (E,): sources in local numbers; node ids in a hop that was left open (see `NeighborSampler.sample`)."""
    positions: Array | None
    """int64 (E,): CSC position of each edge; None where they were not asked for."""
    degree: Array
    """float32 (num_src,): in-degrees in the whole graph without what is excluded; only the destinations' (num_dst,) in
    an open hop."""
    weight: Array | None = None
    """float32 (E,): 1 / pi, with pi the chance that the edge was taken, where that was asked for or is LABOR's.

    The sum over the edges taken of weight * x expects the sum over all in-edges (Horvitz, Thompson: A generalization of
    sampling without replacement from a finite universe, 1952). Divided by the sum of weights it estimates the mean.
    """


class _State:
    """Tables as large as the graph, used by one call at a time."""

    def __init__(self, num_nodes: int, dtype: Any) -> None:
        self.table = np.full(num_nodes, -1, np.int32)
        self.nodes = np.empty(num_nodes + 1, dtype)  # touched as far as a batch reaches
        self.base = 0
        self.count = 0

    def start(self) -> None:
        """Begin a batch without nodes."""
        self.base += self.count
        self.count = 0
        if self.base > _LAST_BASE:  # after some ten thousand batches
            self.table.fill(-1)
            self.base = 0

    def number(self, ids: Array) -> Array:
        """Return local numbers of `ids`, int32 (m,), new nodes at the end."""
        if self.count + len(ids) >= _LAST_BASE:
            raise DataError(
                f"a batch reaches {self.count + len(ids):,} edges; lower train.loader.batch_size or train.loader.fanout"
            )
        local = recycled(len(ids), np.int32)
        self.count = relabel(ids, local, self.nodes, self.count, self.table, self.base)
        return local


class NeighborSampler:
    """Samples blocks of edges around seeds; several threads may share one.

    Memory: 4 bytes a node of the graph for each thread that samples at the same time, and with weights 4 more for all.
    """

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        fanouts: tuple[int, ...],
        *,
        method: Method = "uniform",
        edge_weight: Array | None = None,
        inverse_chances: bool = False,
        positions: bool = True,
    ) -> None:
        """Open a graph.

        Args:
            indptr: int64 (N + 1,), in-edges of each node (CSC).
            indices: int32 or int64 (E,), their sources.
            fanouts: neighbours a layer, from the seeds outwards; -1: all.
            method: `uniform` and `weighted` (in proportion to `edge_weight`) draw without replacement, `replace` with;
                `labor` draws as many in expectation, and the same ones for different destinations.
            edge_weight: float (E,), where `method` is weighted.
            inverse_chances: whether to fill `Sample.weight`, for models that multiply messages by the edges' weights.
                (LABOR fills it for all, as its count of edges is random.) With `weighted` it undoes the preference for
                heavy edges, which other models mean to have.
            positions: whether samples tell the CSC positions of their edges.

        Raises DataError: an edge's weight is negative or no number.
        """
        self.indptr, self.indices = frozen(indptr), frozen(indices)
        self.fanouts = fanouts
        self.method = method
        self.inverse_chances = inverse_chances
        self.positions = positions
        self.edge_weight = None if edge_weight is None else frozen(edge_weight)
        assert (method == "weighted") == (edge_weight is not None), "weights belong to weighted sampling"
        self._largest = np.empty(0 if edge_weight is None else len(indptr) - 1, np.float32)
        if edge_weight is not None and not largest_weights(self.indptr, self.edge_weight, self._largest):
            raise DataError("edge_weight holds negative or infinite numbers or NaN; sampling by weight needs none")
        self._idle: list[_State] = []

    def number(self, ids: Array) -> tuple[Array, Array]:
        """Return local numbers of `ids` (int64, same shape) and the distinct ids in order of first appearance."""
        state = self._borrow()
        local = state.number(np.ascontiguousarray(ids, self.indices.dtype).reshape(-1))
        nodes = state.nodes[: state.count].copy()
        self._idle.append(state)
        return local.astype(np.int64).reshape(ids.shape), nodes

    def sample(
        self, seeds: Array, key: int, excluded: Array | None = None, *, open_last: bool = False
    ) -> tuple[Array, list[Sample]]:
        """Sample around distinct seeds.

        Args:
            seeds: (n,) distinct node ids.
            key: what to draw; the same key draws the same.
            excluded: int64 (2, m) pairs in seed numbering whose edges, both ways, carry no messages.
            open_last: leave the outermost hop open: its sources keep their ids and get no local numbers.

        Returns:
            Node ids (num_src,) of the outermost layer (its destinations if it is open), seeds first, and the layers
            from the outermost to the seeds.
        """
        state = self._borrow()
        seeds = np.ascontiguousarray(seeds, self.indices.dtype)
        state.number(seeds)
        assert state.count == len(seeds), "seeds are distinct"
        banned = None if excluded is None else hash_pairs(seeds, excluded)
        layers: list[Sample] = []
        for hop, fanout in enumerate(self.fanouts):
            layer = self._draw(state.nodes[: state.count], fanout, derive_key(key, hop), banned, seeds)
            if not (open_last and hop == len(self.fanouts) - 1):
                layer.indices = state.number(layer.indices)
            layers.append(layer)
        nodes = recycled(state.count, self.indices.dtype)
        nodes[:] = state.nodes[: state.count]
        self._idle.append(state)
        # A layer's sources are the next one's destinations, whose degrees are counted there.
        degrees = [layer.degree for layer in layers[1:]]
        if layers and not open_last:
            degrees.append(recycled(len(nodes), np.float32))
            draws.in_degrees(self.indptr, nodes, degrees[-1])
            if banned is not None:
                lower_degrees(self.indptr, self.indices, seeds, banned, degrees[-1])
        for layer, degree in zip(layers, degrees, strict=False):
            layer.degree = degree
        return nodes, layers[::-1]

    def _borrow(self) -> _State:
        """Take a state that no other call uses; the call puts it back into `_idle`."""
        try:
            state = self._idle.pop()
        except IndexError:
            state = _State(len(self.indptr) - 1, self.indices.dtype)
        state.start()
        return state

    def _draw(self, nodes: Array, fanout: int, key: int, banned: Array | None, seeds: Array) -> Sample:
        """Draw one layer's edges; sources are node ids."""
        counts, degree = recycled(len(nodes) + 1, np.int64), recycled(len(nodes), np.float32)
        room = self._room(nodes, fanout)
        positions, ids = recycled(room, np.int64), recycled(room, self.indices.dtype)
        weight = np.empty(0, np.float32)
        into = (counts, degree, positions)
        if fanout < 0:
            draws.take_all(self.indptr, nodes, *into)
        elif self.method == "labor":
            draw_labor(self.indptr, self.indices, nodes, fanout, key, *into, ids)
        elif self.method == "weighted":
            if self.inverse_chances:
                weight = recycled(room, np.float32)
                draw_with_chances(self.indptr, self.edge_weight, nodes, fanout, key, *into, weight)
            else:
                draw_weighted(self.indptr, self.edge_weight, self._largest, nodes, fanout, key, *into)
        elif self.method == "replace":
            draws.draw_with_replacement(self.indptr, nodes, fanout, key, *into)
        else:
            draws.draw_uniform(self.indptr, nodes, fanout, key, *into)
        total = int(counts[-1])
        if fanout < 0 or self.method != "labor":  # which has read them
            draws.gather_ids(self.indices, positions[:total], ids)
        if self.method == "labor" or (self.inverse_chances and self.method != "weighted"):
            weight = recycled(total, np.float32)
            draws.inverse_chances(counts, degree, fanout if self.method == "labor" else -1, weight)
        if banned is not None:
            total = drop_edges(counts, ids, positions, weight, len(seeds), banned)
            lower_degrees(self.indptr, self.indices, seeds, banned, degree)
        return Sample(
            counts,
            ids[:total],
            positions[:total] if self.positions else None,
            degree,
            weight[:total] if len(weight) else None,
        )

    def _room(self, nodes: Array, fanout: int) -> int:
        """Return how many entries a layer's arrays need, with what its kernel writes beyond the end."""
        if fanout < 0 or self.method == "labor":
            return int(draws.count_edges(self.indptr, nodes, _ALL)) + 1
        if self.method == "replace" or fanout <= draws.SMALL_FANOUT:
            return (len(nodes) + 1) * fanout
        return int(draws.count_edges(self.indptr, nodes, fanout))
