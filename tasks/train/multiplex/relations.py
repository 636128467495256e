"""The graph of each relation, and what walks and neighbours are drawn from it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.arrays import Array
from tasks.sampling.walks.random_walks import out_weights
from tasks.storage.graph_store import GraphStore


@dataclass(frozen=True)
class RelationGraph:
    """Out-edges of a relation, over all nodes."""

    indptr: Array
    """int64 (N + 1,)."""
    indices: Array
    """id (E_r,), ascending within a node."""
    weight: Array | None
    """float32 (E_r,); None: all alike."""


def relation_graphs(store: GraphStore) -> list[RelationGraph]:
    """Return the graph of each relation that links are predicted in; 8 to 16 bytes an edge, and 8 a node for each."""
    indptr, indices = np.asarray(store["csr_indptr"]), np.asarray(store["csr_indices"])
    symmetric = store.manifest.symmetric  # what leads to a node is then what leads from it, in each relation
    weight = out_weights(store, symmetric=symmetric)
    kinds = store.get("edge_type")
    if kinds is None:
        return [RelationGraph(indptr, indices, weight)]
    kinds = np.asarray(kinds) if symmetric else np.asarray(kinds)[np.asarray(store["csr_eids"])]
    found = []
    for relation in range(store.manifest.num_relations):
        own = kinds == relation
        before = np.append(0, np.cumsum(own))
        found.append(RelationGraph(before[indptr], indices[own], None if weight is None else weight[own]))
    return found


def drawn_neighbors(graphs: list[RelationGraph], nodes: Array, count: int, random: np.random.Generator) -> Array:
    """Return `count` out-neighbours of nodes in each relation, with replacement: int64 (n, R, count).

    A node without any has itself in their place.
    """
    found = np.empty((len(nodes), len(graphs), count), np.int64)
    for number, graph in enumerate(graphs):
        first = graph.indptr[nodes]
        degree = graph.indptr[nodes + 1] - first
        place = (random.random((len(nodes), count), dtype=np.float32) * degree[:, None]).astype(np.int64)
        # A share just below 1 may round to the degree.
        place = first[:, None] + np.minimum(place, np.maximum(degree - 1, 0)[:, None])
        has_some = degree > 0
        found[:, number] = nodes[:, None]
        found[has_some, number] = graph.indices[place[has_some]]
    return found
