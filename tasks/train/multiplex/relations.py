"""The graph of each relation, and the walks and neighbours that are drawn from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from configs.errors import DataError
from configs.families.row_training import MultiplexTrainConfig
from tasks.arrays import Array
from tasks.sampling.neighborhoods.neighbors import derive_key
from tasks.sampling.walks.pairs import expected_pairs, walk_pairs
from tasks.sampling.walks.random_walks import Walks, out_weights
from tasks.storage.graph_store import GraphStore

_WALKS, _WINDOWS = 11, 12
"""Purposes that keys are drawn for."""


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
    graphs = []
    for relation in range(store.manifest.num_relations):
        own = kinds == relation
        before = np.append(0, np.cumsum(own))
        graphs.append(RelationGraph(before[indptr], indices[own], None if weight is None else weight[own]))
    return graphs


def drawn_neighbors(graphs: list[RelationGraph], nodes: Array, count: int, random: np.random.Generator) -> Array:
    """Return `count` out-neighbours of nodes in each relation, with replacement: int64 (n, R, count).

    A node without any has itself in their place.
    """
    neighbors = np.empty((len(nodes), len(graphs), count), np.int64)
    for number, graph in enumerate(graphs):
        first = graph.indptr[nodes]
        degree = graph.indptr[nodes + 1] - first
        place = (random.random((len(nodes), count), dtype=np.float32) * degree[:, None]).astype(np.int64)
        # A share just below 1 may round to the degree.
        place = first[:, None] + np.minimum(place, np.maximum(degree - 1, 0)[:, None])
        has_some = degree > 0
        neighbors[:, number] = nodes[:, None]
        neighbors[has_some, number] = graph.indices[place[has_some]]
    return neighbors


class RelationWalks:
    """Pairs of all relations: walks of each, as many as its nodes ask for. A batch depends on its number alone."""

    def __init__(self, graphs: list[RelationGraph], names: list[str], train: MultiplexTrainConfig, seed: int) -> None:
        """Prepare the walks. Raises DataError: a relation without edges."""
        self.loader, self.seed = cast(Any, train.loader), seed
        options = self.loader
        self.walks: list[Walks] = []
        for number, graph in enumerate(graphs):
            if not len(graph.indices):
                raise DataError(f"relation {names[number]} has no edge to walk along: leave it out")
            weight = graph.weight if options.edge_weights else None
            self.walks.append(
                Walks(
                    graph.indptr,
                    graph.indices,
                    key=derive_key(seed, _WALKS, number),
                    length=options.length,
                    by_degree=options.start == "degree",
                    weight=weight,
                    p=options.p,
                    q=options.q,
                )
            )
        starts = np.array([len(walks.starts) for walks in self.walks])
        each = expected_pairs(options.length, options.window, options.forward, options.shrink)
        wanted = train.batch_size / each * starts / starts.sum()
        self.counts = np.clip(np.rint(wanted), 1, train.walks * starts).astype(np.int64)
        """Walks of a batch, by relation."""
        self.batches_an_epoch = int(np.ceil(train.walks * starts / self.counts).max())
        """Batches of an epoch."""

    def pairs(self, number: int) -> tuple[Array, Array, Array]:
        """Return a batch's centres, relations and contexts, (n,) each."""
        options, parts = self.loader, []
        for relation, (walks, count) in enumerate(zip(self.walks, self.counts.tolist(), strict=True)):
            tokens = np.empty((count, options.length), walks.indices.dtype)
            first = number * count
            walks.fill(first, tokens)
            key = derive_key(self.seed, _WINDOWS, relation)
            near = {"forward": options.forward, "shrink": options.shrink}
            centres, contexts = walk_pairs(tokens, options.window, **near, key=key, first=first)
            parts.append((centres, np.full(len(centres), relation, np.int32), contexts))
        centres, relations, contexts = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return centres, relations, contexts
