"""Drawing a layer's edges from the in-edges of a graph, or of a range of its nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from configs.errors import DataError
from models.kernels.memory import recycled
from tasks.sampling.neighborhoods import draws
from tasks.sampling.neighborhoods.labor import draw_labor
from tasks.sampling.neighborhoods.lookup import frozen
from tasks.sampling.neighborhoods.weighted import draw_weighted, draw_with_chances, largest_weights

Array = NDArray[Any]
Method = Literal["uniform", "replace", "weighted", "labor"]

_ALL = 1 << 62


@dataclass(frozen=True)
class Seeds:
    """What one batch is sampled around."""

    nodes: Array
    """(n,), distinct."""
    key: int
    """What to draw; the same key draws the same."""
    excluded: Array | None = None
    """int64 (2, m): pairs in seed numbering whose edges, both ways, carry no messages."""


@dataclass
class Sample:
    """One sampled layer."""

    indptr: Array
    """int64 (num_dst + 1,)."""
    indices: Array
    """int32 (E,): sources in local numbers; node ids where they got none (see `NeighborSampler.sample`)."""
    positions: Array | None
    """int64 (E,): CSC position of each edge; None where they were not asked for."""
    degree: Array
    """float32 (num_src,): in-degrees in the whole graph without what is excluded; only the destinations' (num_dst,)
    where sources got no local numbers."""
    weight: Array | None = None
    """float32 (E,): 1 / pi, with pi the chance that the edge was taken, where that was asked for or is LABOR's.

    The sum over the edges taken of weight * x expects the sum over all in-edges (Horvitz, Thompson: A generalization of
    sampling without replacement from a finite universe, 1952). Divided by the sum of weights it estimates the mean.
    """


class InEdges:
    """The in-edges of nodes first, first + 1, ... of a graph.

    What is drawn for a node depends on the key and on the node's id: whoever holds it draws the same. Several threads
    may share one. Memory: with weights 4 bytes a node.
    """

    def __init__(
        self,
        indptr: Array,
        indices: Array,
        *,
        first: int = 0,
        method: Method = "uniform",
        edge_weight: Array | None = None,
        inverse_chances: bool = False,
    ) -> None:
        """Open them; the options are those of `NeighborSampler`.

        Args:
            indptr: int64 (n + 1,), of nodes first to first + n - 1; begins with 0.
            indices: int32 or int64 (E,), sources of their in-edges.
            first: the first node's id.
            method: how edges are drawn.
            edge_weight: float (E,), where `method` is weighted.
            inverse_chances: whether to fill `Sample.weight`.

        Raises DataError: an edge's weight is negative or no number.
        """
        self.indptr, self.indices, self.first = frozen(indptr), frozen(indices), first
        self.method = method
        self.inverse_chances = inverse_chances
        self.edge_weight = None if edge_weight is None else frozen(edge_weight)
        assert (method == "weighted") == (edge_weight is not None), "weights belong to weighted sampling"
        self._largest = np.empty(0 if edge_weight is None else len(indptr) - 1, np.float32)
        if edge_weight is not None and not largest_weights(self.indptr, self.edge_weight, self._largest):
            raise DataError("edge_weight holds negative or infinite numbers or NaN; sampling by weight needs none")

    @property
    def fills_weight(self) -> bool:
        """Whether samples have `Sample.weight`."""
        return self.method == "labor" or self.inverse_chances

    def draw(self, nodes: Array, fanout: int, key: int) -> Sample:
        """Draw one layer's edges into nodes (n,), like `indices`; sources are node ids, degrees the destinations'."""
        counts, degree = recycled(len(nodes) + 1, np.int64), recycled(len(nodes), np.float32)
        room = self._room(nodes, fanout)
        positions, ids = recycled(room, np.int64), recycled(room, self.indices.dtype)
        weight = np.empty(0, np.float32)
        of, into = (self.first, nodes), (counts, degree, positions)
        if fanout < 0:
            draws.take_all(self.indptr, *of, *into)
        elif self.method == "labor":
            draw_labor(self.indptr, self.indices, *of, fanout, key, *into, ids)
        elif self.method == "weighted":
            if self.inverse_chances:
                weight = recycled(room, np.float32)
                draw_with_chances(self.indptr, self.edge_weight, *of, fanout, key, *into, weight)
            else:
                draw_weighted(self.indptr, self.edge_weight, self._largest, *of, fanout, key, *into)
        elif self.method == "replace":
            draws.draw_with_replacement(self.indptr, *of, fanout, key, *into)
        else:
            draws.draw_uniform(self.indptr, *of, fanout, key, *into)
        total = int(counts[-1])
        if fanout < 0 or self.method != "labor":  # which has read them
            draws.gather_ids(self.indices, positions[:total], ids)
        if self.fills_weight and (self.method != "weighted" or fanout < 0):
            weight = recycled(total, np.float32)
            draws.inverse_chances(counts, degree, fanout if self.method == "labor" else -1, weight)
        return Sample(counts, ids[:total], positions[:total], degree, weight[:total] if self.fills_weight else None)

    def degrees(self, nodes: Array) -> Array:
        """Return the in-degrees of nodes (n,): float32."""
        degree = recycled(len(nodes), np.float32)
        draws.in_degrees(self.indptr, self.first, nodes, degree)
        return degree

    def _room(self, nodes: Array, fanout: int) -> int:
        """Return how many entries a layer's arrays need, with what its kernel writes beyond the end."""
        if fanout < 0 or self.method == "labor":
            return int(draws.count_edges(self.indptr, self.first, nodes, _ALL)) + 1
        if self.method == "replace" or fanout <= draws.SMALL_FANOUT:
            return (len(nodes) + 1) * fanout
        return int(draws.count_edges(self.indptr, self.first, nodes, fanout))
