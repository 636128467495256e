"""The part of a graph that one rank works on: its own nodes, the halo around them, and the edges among those."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from configs.errors import DataError
from tasks.arrays import Array, blocks
from tasks.storage.graph_store import MISSING_IN_EDGES, NODE_ARRAYS, GraphStore, id_dtype

_EDGE_ARRAYS = ("edge_weight", "edge_time", "edge_type", "edge_feat", "edge_feat_cat")
_OUTSIDE = -1
_CHUNK_ROWS = 1 << 20


@njit(cache=True, nogil=True)
def find_halo(indptr, indices, first, end, hops, local):  # type: ignore[no-untyped-def]
    """Mark in `local` (N,), all -1, the nodes first..end - 1 and those from which they are reached in `hops` edges.

    Returns the marked nodes, ascending.
    """
    members = np.empty(len(local), np.int64)
    count = 0
    for v in range(first, end):
        local[v] = 0
        members[count] = v
        count += 1
    done = 0
    for _ in range(hops):
        level_end = count
        for m in range(done, level_end):
            v = members[m]
            for e in range(indptr[v], indptr[v + 1]):
                u = indices[e]
                if local[u] < 0:
                    local[u] = 0
                    members[count] = u
                    count += 1
        done = level_end
    return np.sort(members[:count])


@njit(cache=True, nogil=True)
def count_inside(indptr, indices, nodes, local, counts):  # type: ignore[no-untyped-def]
    """Fill counts (n + 1,) with the running number of in-edges of `nodes` whose sources are in `local` too."""
    counts[0] = 0
    for i in range(len(nodes)):
        inside = 0
        for e in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            if local[indices[e]] >= 0:
                inside += 1
        counts[i + 1] = counts[i] + inside


@njit(cache=True, nogil=True)
def take_inside(indptr, indices, nodes, local, sources, positions):  # type: ignore[no-untyped-def]
    """Fill the sources of those edges, in local numbers, and their CSC positions in the whole graph."""
    w = 0
    for i in range(len(nodes)):
        for e in range(indptr[nodes[i]], indptr[nodes[i] + 1]):
            at = local[indices[e]]
            if at >= 0:
                sources[w] = at
                positions[w] = e
                w += 1


class LocalGraph(GraphStore):
    """The subgraph of a range of nodes and their halo, in memory, under local numbers that ascend with the global ones.

    It has all edges among these nodes: with one hop of halo or more, all that lead to own nodes in the whole graph; for
    halo nodes some are missing. `missing_in_edges` counts those, so that models divide by the degrees of the whole
    graph. The only split is train: own nodes, or edges that lead to own nodes. Memory: the local rows and edges, and 12
    bytes for each node of the whole graph while this is made.
    """

    def __init__(self, store: GraphStore, first: int, end: int, hops: int) -> None:
        """Read own nodes first..end - 1 of the whole graph and `hops` hops of in-neighbours.

        Raises DataError: there is nothing to train on among them.
        """
        manifest = store.manifest
        indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
        local = np.full(manifest.num_nodes, _OUTSIDE, id_dtype(manifest.num_nodes))
        self.nodes: NDArray[np.int64] = find_halo(indptr, indices, first, end, hops, local)
        """Global ids of the local nodes, ascending: int64 (n,)."""
        local[self.nodes] = np.arange(len(self.nodes))
        self._arrays: dict[str, Array] = {}
        self._cut_edges(store, indptr, indices, local)
        for name in NODE_ARRAYS:
            rows = store.get(name)
            if rows is not None:
                self._arrays[name] = _take(rows, self.nodes)
        count = self._cut_seeds(store, first, end, local)
        if not count:
            raise DataError(
                f"nodes {first:,} to {end:,}, one rank's part, hold nothing to train on; "
                "set partition.balance_train=true, or take fewer ranks"
            )
        sizes = {"num_nodes": len(self.nodes), "num_edges": len(self._arrays["csc_indices"])}
        super().__init__(store.folder, manifest.model_copy(update={**sizes, "splits": {"train": count}, "arrays": {}}))

    def _cut_edges(self, store: GraphStore, indptr: Array, indices: Array, local: Array) -> None:
        counts = np.empty(len(self.nodes) + 1, np.int64)
        count_inside(indptr, indices, self.nodes, local, counts)
        sources, positions = np.empty(counts[-1], local.dtype), np.empty(counts[-1], np.int64)
        take_inside(indptr, indices, self.nodes, local, sources, positions)
        missing = indptr[self.nodes + 1] - indptr[self.nodes] - np.diff(counts)
        self._arrays |= {"csc_indptr": counts, "csc_indices": sources, MISSING_IN_EDGES: missing.astype(np.float32)}
        for name in _EDGE_ARRAYS:
            rows = store.get(name)
            if rows is not None:
                self._arrays[name] = _take(rows, positions)

    def _cut_seeds(self, store: GraphStore, first: int, end: int, local: Array) -> int:
        """Keep the training nodes, or edges, of own nodes; return how many there are."""
        if store.manifest.split_rows.are_nodes:
            nodes = np.asarray(store["train_idx"])
            self._arrays["train_idx"] = local[nodes[slice(*np.searchsorted(nodes, (first, end)))]]
            return len(self._arrays["train_idx"])
        edges = np.asarray(store["train_edges"])
        own = np.flatnonzero((edges[:, 1] >= first) & (edges[:, 1] < end) & (local[edges[:, 0]] >= 0))
        self._arrays["train_edges"] = local[edges[own]]
        weight = store.get("train_edge_weight")
        if weight is not None:
            self._arrays["train_edge_weight"] = weight[own]
        return len(own)

    def __contains__(self, name: str) -> bool:
        """Whether the local graph has this array."""
        return self._resolve(name) in self._arrays

    def __getitem__(self, name: str) -> Array:
        """Return an array. Raises KeyError naming what there is."""
        name = self._resolve(name)
        if name not in self._arrays:
            raise KeyError(f"a rank's part has no array {name!r}; it has {', '.join(sorted(self._arrays))}")
        return self._arrays[name]


def _take(table: Array, rows: NDArray[np.int64]) -> Array:
    """Return rows of a memory map, read a chunk at a time."""
    out: Any = np.empty((len(rows), *table.shape[1:]), table.dtype)
    for part in blocks(len(rows), _CHUNK_ROWS):
        out[part] = table[rows[part]]
    return out
