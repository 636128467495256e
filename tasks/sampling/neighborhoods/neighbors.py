"""Neighbour sampling over memory-mapped CSC arrays.

All randomness is by counter: what a call draws depends on its key and on node ids only, never on what was drawn before.
Kernels release the GIL, and several threads may sample at once. Ids are int32 from end to end while they fit; local
numbers always are.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from models.kernels.memory import recycled
from tasks.arrays import Array
from tasks.counter_random import bits, permute
from tasks.sampling.neighborhoods.by_relation import RelationInEdges
from tasks.sampling.neighborhoods.in_edges import InEdges, Sample
from tasks.sampling.neighborhoods.relabel import ALL_ASKED, AskedEdges, Numbering, hash_pairs, leave_out, lower_degrees


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


class NeighborSampler:
    """Samples blocks of edges around seeds; several threads may share one.

    Memory: 4 bytes a node of the graph for each thread that samples at the same time.
    """

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        fanouts: tuple[int, ...],
        *,
        inverse_chances: bool = False,
        positions: bool = True,
        asked: AskedEdges = ALL_ASKED,
        edge_type: Array | None = None,
    ) -> None:
        """Open a graph.

        Args:
            indptr: int64 (N + 1,), in-edges of each node (CSC).
            indices: int32 or int64 (E,), their sources.
            fanouts: neighbours a layer, from the seeds outwards; -1: all.
            inverse_chances: whether to fill `Sample.weight`, for models that multiply messages by the edges' weights.
            positions: whether samples tell the CSC positions of their edges.
            asked: edges that `excluded` pairs are; others between the same nodes stay.
            edge_type: int16 (E,), by CSC position: `fanouts` are of each relation; None: of all together.
        """
        self.asked = asked
        self.fanouts = fanouts
        self.positions = positions
        if edge_type is None:
            self.edges = InEdges(indptr, indices, inverse_chances=inverse_chances)
        else:
            self.edges = RelationInEdges(indptr, indices, edge_type, inverse_chances=inverse_chances)
        self._idle: list[Numbering] = []

    def number(self, ids: Array) -> tuple[Array, Array]:
        """Return local numbers of `ids` (int64, same shape) and the distinct ids in order of first appearance."""
        state = self._borrow()
        numbers = state.number_all(ids)
        self._idle.append(state)
        return numbers

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
        seeds = np.ascontiguousarray(seeds, self.edges.indices.dtype)
        state.number(seeds)
        assert state.count == len(seeds), "seeds are distinct"
        banned = None if excluded is None else hash_pairs(seeds, excluded)
        layers: list[Sample] = []
        for hop, fanout in enumerate(self.fanouts):
            layer = self._draw(state.nodes[: state.count], fanout, derive_key(key, hop), banned, seeds)
            if not (open_last and hop == len(self.fanouts) - 1):
                layer.indices = state.number(layer.indices)
            layers.append(layer)
        nodes = recycled(state.count, self.edges.indices.dtype)
        nodes[:] = state.nodes[: state.count]
        self._idle.append(state)
        # A layer's sources are the next one's destinations, whose degrees are counted there.
        degrees = [layer.degree for layer in layers[1:]]
        if layers and not open_last:
            degrees.append(self.edges.degrees(nodes))
            if banned is not None:
                lower_degrees(self.edges.indptr, self.edges.indices, seeds, banned, degrees[-1], self.asked)
        for layer, degree in zip(layers, degrees, strict=False):
            layer.degree = degree
        return nodes, layers[::-1]

    def _borrow(self) -> Numbering:
        """Take a state that no other call uses; the call puts it back into `_idle`."""
        try:
            state = self._idle.pop()
        except IndexError:
            state = Numbering(len(self.edges.indptr) - 1, self.edges.indices.dtype)
        state.start()
        return state

    def _draw(self, nodes: Array, fanout: int, key: int, banned: Array | None, seeds: Array) -> Sample:
        """Draw one layer's edges; sources are node ids."""
        layer = self.edges.draw(nodes, fanout, key)
        if banned is not None:
            leave_out(layer, len(seeds), banned, self.asked)
            lower_degrees(self.edges.indptr, self.edges.indices, seeds, banned, layer.degree, self.asked)
        if not self.positions:
            layer.positions = None
        return layer
