"""Batches of whole graphs, assembled from contiguous slices."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray

from models.block import Batch, Block
from tasks.sampling.rows.features import FeatureSource
from tasks.sampling.rows.labels import targets
from tasks.storage.graph_store import GraphStore

Array = NDArray[Any]


@njit(cache=True, nogil=True)
def assemble(offsets, indptr, indices, graphs, starts, edge_starts, nodes, out_indptr, out_indices, positions):  # type: ignore[no-untyped-def]
    """Lay graphs end to end: node ids, CSC with local numbers, CSC positions of the edges."""
    out_indptr[0] = 0
    for g in range(len(graphs)):
        first, last = offsets[graphs[g]], offsets[graphs[g] + 1]
        shift = starts[g] - first
        low = indptr[first]
        edge_shift = edge_starts[g] - low
        for v in range(first, last):
            nodes[v + shift] = v
            out_indptr[v + shift + 1] = indptr[v + 1] + edge_shift
        for e in range(low, indptr[last]):
            positions[e + edge_shift] = e
            out_indices[e + edge_shift] = indices[e] + shift


class GraphBatches:
    """Batches of some graphs."""

    def __init__(self, store: GraphStore, features: FeatureSource, graphs: Array) -> None:
        """`graphs`: integer (n,)."""
        self.manifest, self.seeds, self.labels = store.manifest, graphs, store["graph_label"]
        self.features = features
        self.offsets = np.asarray(store["graph_offsets"])
        self.indptr, self.indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])

    def batch(self, positions: Array) -> Batch:
        """Assemble the graphs at `positions`, int64 (n,)."""
        graphs = np.asarray(self.seeds[positions], np.int64)
        first, last = self.offsets[graphs], self.offsets[graphs + 1]
        starts = np.concatenate([[0], np.cumsum(last - first)])
        edge_starts = np.concatenate([[0], np.cumsum(self.indptr[last] - self.indptr[first])])
        nodes, indptr = np.empty(starts[-1], np.int64), np.empty(starts[-1] + 1, np.int64)
        indices, edges = np.empty(edge_starts[-1], np.int32), np.empty(edge_starts[-1], np.int64)
        assemble(self.offsets, self.indptr, self.indices, graphs, starts, edge_starts, nodes, indptr, indices, edges)
        block = Block(torch.from_numpy(indptr), torch.from_numpy(indices), len(nodes))
        return Batch(
            blocks=[self.features.attach(block, edges)],
            inputs=self.features.inputs(nodes),
            target=targets(self.manifest, self.labels[graphs]),
            num_seeds=len(graphs),
            graph_offsets=torch.from_numpy(starts),
            num_edges=len(indices),
        )
