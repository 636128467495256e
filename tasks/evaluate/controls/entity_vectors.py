"""Vectors of entities from the graph as it was at their moments, by FastRP: what a control may know of the structure.

FastRP's random numbers belong to nodes, so vectors of one node at two moments are comparable.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from models.kernels.sparse.adjacency import Adjacency
from models.vectors.base import FactorGraph
from models.vectors.configs import FastRPConfig
from models.vectors.fastrp import FastRP
from tasks.arrays import Array, offsets
from tasks.sampling.relational.edges import RelationalEdges

DIM = 32
MOST_EDGES = 50_000_000
"""Of a graph: half a second for each ten million and moment, on two cores in 2026."""
_MOST_MOMENTS = 12
"""At which vectors are computed: rows in between have those of the moment before."""
_CONFIG = FastRPConfig(name="fastrp", dim=DIM)
_SEED = 1


def moments_of(cuts: Array) -> Array:
    """Return the moments at which vectors are computed for rows of these cuts, int64, ascending."""
    moments = np.unique(cuts)
    if len(moments) <= _MOST_MOMENTS:
        return moments
    shares = np.arange(_MOST_MOMENTS) / _MOST_MOMENTS
    return np.unique(np.quantile(cuts, shares, method="lower"))


def fill_vectors(edges: RelationalEdges, entities: Array, cuts: Array | None, out: Array) -> None:
    """Compute vectors of entities, id (n,), as of their cuts, int64 (n,), into float32 (n, DIM).

    A row reads edges older than the latest of some moments that is no later than its cut. Without cuts, all edges.
    """
    if cuts is None or edges.times is None:
        out[:] = vectors_before(edges, None).numpy()[entities]
        return
    moments = moments_of(cuts)
    of_row = np.searchsorted(moments, cuts, side="right") - 1
    for number, moment in enumerate(moments.tolist()):
        rows = np.flatnonzero(of_row == number)
        out[rows] = vectors_before(edges, moment).numpy()[entities[rows]]


def vectors_before(edges: RelationalEdges, moment: int | None) -> torch.Tensor:
    """Return vectors of all nodes by the edges older than a moment, float32 (N, DIM)."""
    by_node, size = edges.indptr[edges.slot_start], len(edges.entries)
    sources = edges.entries[:, 0]
    if moment is not None and edges.times is not None:
        assert edges.clock is not None
        older = edges.times[:size] < edges.clock.cuts(np.array([moment], np.int64))[0]
        by_node, sources = offsets(older)[by_node], sources[older]
    adjacency = Adjacency(
        torch.from_numpy(np.ascontiguousarray(by_node, np.int64)),
        torch.from_numpy(np.ascontiguousarray(sources)),
        len(by_node) - 1,
    )
    return FastRP.factor(_CONFIG, FactorGraph(adjacency, None, _no_pairs), _SEED, lambda _: None)


def _no_pairs(length: int, window: int, count: float) -> Iterator[tuple[Array, Array]]:
    raise AssertionError("FastRP draws no pairs")
