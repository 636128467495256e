"""The edges that a layout goes by: in memory, each in both directions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from tasks.arrays import Array
from tasks.layout.start import is_mesh
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import NEIGHBORS


class _Arrays(dict[str, Array]):
    """What a loader of pairs reads of a graph."""

    manifest: SimpleNamespace


@dataclass(frozen=True)
class EdgeList:
    """A graph's edges as CSR, each in both directions."""

    indptr: NDArray[np.int64]
    """(N + 1,)."""
    indices: Array
    """int32 or int64 (E,)."""
    weight: NDArray[np.float32] | None = None
    """float32 (E,); None: all alike."""
    of_graph: bool = False
    """Whether they are a graph's own edges, and do not join nearest neighbours of vectors."""

    @classmethod
    def of(cls, store: GraphStore) -> EdgeList:
        """Take a graph's edges, and add the reverse of each where that is missing."""
        of_graph = NEIGHBORS not in store.manifest.report
        indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
        weight = store.get("edge_weight")
        if store.manifest.symmetric:
            return cls(indptr, indices, weight, of_graph)
        size = store.manifest.num_nodes
        data = np.ones(len(indices), np.float32) if weight is None else np.asarray(weight)
        one = sparse.csr_matrix((data, indices, indptr), shape=(size, size))
        both = (one + one.T).tocsr()
        return cls(
            both.indptr.astype(np.int64), both.indices.astype(indices.dtype), both.data.astype(np.float32), of_graph
        )

    def alone(self) -> NDArray[np.bool_]:
        """Return which nodes have no edge: (N,)."""
        return np.diff(self.indptr) == 0

    @property
    def num_nodes(self) -> int:
        """Nodes, those without edges included."""
        return len(self.indptr) - 1

    @property
    def sources(self) -> Array:
        """The first end of each edge, (E,)."""
        return np.repeat(np.arange(self.num_nodes, dtype=self.indices.dtype), np.diff(self.indptr))

    def by_degree(self) -> EdgeList:
        """Return it with weights over the roots of both ends' degrees: else a hub's edges are all that pulls."""
        root = np.sqrt(np.maximum(np.diff(self.indptr), 1)).astype(np.float32)
        weight = np.float32(1) / (root[self.sources] * root[self.indices])
        both = weight if self.weight is None else weight * np.asarray(self.weight)
        return replace(self, weight=both.astype(np.float32))

    def is_mesh(self) -> bool | None:
        """Whether nodes of a graph are far from each other; None: its edges join nearest neighbours of vectors."""
        return is_mesh(self.indptr, self.indices) if self.of_graph else None

    def edge_length(self, points: Array) -> float:
        """Return the root of the mean squared length of edges between points (N, dim)."""
        squares = np.square(points[self.sources] - points[self.indices]).sum(1, dtype=np.float64)
        return float(np.sqrt(squares.mean())) if len(squares) else 0.0

    def drawn_from(self) -> Any:
        """Return what a loader of pairs reads a graph from; a graph's own edges have their weights by degree."""
        weight = self.by_degree().weight if self.of_graph else self.weight
        arrays = {"csr_indptr": self.indptr, "csr_indices": self.indices}
        readable = _Arrays(arrays if weight is None else {**arrays, "edge_weight": weight})
        readable.manifest = SimpleNamespace(symmetric=True, dataset="the graph")
        return readable
