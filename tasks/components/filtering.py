"""Leave nodes out of a graph: every array follows, in chunks, from memory map to memory map.

The nodes left out are whole components, so all edges of a kept node stay, and rows keep their order.
Memory: one id a node for the renumbering, and a chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.negatives import replace_gone
from tasks.storage.graph_store import ArrayWriter, GraphStore

Array = NDArray[Any]

NODE_ARRAYS = ("feat", "feat_cat", "label", "node_type", "node_time", "node_ids")
EDGE_ARRAYS = ("edge_weight", "edge_time", "edge_type", "edge_feat", "edge_feat_cat")
_CHUNK_NODES = 1 << 18
_CHUNK_EDGES = 1 << 20


@njit(cache=True, nogil=True)
def _copy_rows(indptr: Array, indices: Array, kept: Array, new_id: Array, out_indptr: Array, out: Array) -> None:
    """Write the kept rows with renumbered columns."""
    for k in range(len(kept)):
        v = kept[k]
        place = out_indptr[k]
        for i in range(indptr[v], indptr[v + 1]):
            out[place] = new_id[indices[i]]
            place += 1


@njit(cache=True, nogil=True)
def _copy_eids(
    csr_indptr: Array,
    csr_indices: Array,
    csr_eids: Array,
    kept: Array,
    new_id: Array,
    indptr: Array,
    out_indptr: Array,
    out: Array,
) -> None:
    """Write the CSC positions of the kept CSR edges: a position moves as its row (the edge's column in CSR) does."""
    place = 0
    for k in range(len(kept)):
        v = kept[k]
        for i in range(csr_indptr[v], csr_indptr[v + 1]):
            row = csr_indices[i]
            out[place] = csr_eids[i] - indptr[row] + out_indptr[new_id[row]]
            place += 1


class NodeFilter:
    """Writes the subgraph of the kept nodes."""

    def __init__(self, store: GraphStore, keep: NDArray[np.bool_], writer: ArrayWriter) -> None:
        """`keep` is bool (N,)."""
        self.store, self.writer = store, writer
        self.id_type = store["csc_indices"].dtype
        self.kept = np.flatnonzero(keep).astype(self.id_type)
        self.new_id: Array = np.full(len(keep), -1, self.id_type)
        self.new_id[self.kept] = np.arange(len(self.kept), dtype=self.id_type)

    def write_structure(self) -> int:
        """Write CSC, CSR and the way between them; returns the number of edges."""
        indptr, indices = self.store["csc_indptr"], self.store["csc_indices"]
        out_indptr = self._write_direction("csc")
        if "csr_indptr" in self.store.manifest.arrays:
            self._write_direction("csr")
        if "csr_eids" in self.store:
            out = self.writer.create("csr_eids", (int(out_indptr[-1]),), np.int64)
            csr = [np.asarray(self.store[name]) for name in ("csr_indptr", "csr_indices", "csr_eids")]
            _copy_eids(csr[0], csr[1], csr[2], self.kept, self.new_id, np.asarray(indptr), out_indptr, np.asarray(out))
        self._write_edge_data(np.asarray(indptr), out_indptr)
        assert len(indices) >= out_indptr[-1]
        return int(out_indptr[-1])

    def _write_direction(self, name: str) -> Array:
        indptr, indices = np.asarray(self.store[f"{name}_indptr"]), np.asarray(self.store[f"{name}_indices"])
        out_indptr = np.zeros(len(self.kept) + 1, np.int64)
        np.cumsum(indptr[self.kept.astype(np.int64) + 1] - indptr[self.kept], out=out_indptr[1:])
        out = self.writer.create(f"{name}_indices", (int(out_indptr[-1]),), self.id_type)
        _copy_rows(indptr, indices, self.kept, self.new_id, out_indptr, np.asarray(out))
        self.writer.write(f"{name}_indptr", out_indptr)
        return out_indptr

    def _write_edge_data(self, indptr: Array, out_indptr: Array) -> None:
        """Edge data lies in CSC order: gather the kept rows' positions, some rows at a time."""
        names = [name for name in EDGE_ARRAYS if name in self.store]
        outs = {
            name: self.writer.create(name, (int(out_indptr[-1]), *self.store[name].shape[1:]), self.store[name].dtype)
            for name in names
        }
        start = 0
        while names and start < len(self.kept):
            end = int(np.searchsorted(out_indptr, out_indptr[start] + _CHUNK_EDGES, side="right")) - 1
            end = min(max(end, start + 1), len(self.kept))  # a row of more edges is a chunk of its own
            first, last = int(out_indptr[start]), int(out_indptr[end])
            shift = indptr[self.kept[start:end]] - out_indptr[start:end]
            positions = np.arange(first, last) + np.repeat(shift, np.diff(out_indptr[start : end + 1]))
            for name in names:
                outs[name][first:last] = self.store[name][positions]
            start = end

    def write_node_data(self) -> None:
        """Copy the rows of kept nodes."""
        for name in NODE_ARRAYS:
            if name not in self.store:
                continue
            source = self.store[name]
            out = self.writer.create(name, (len(self.kept), *source.shape[1:]), source.dtype)
            for start in range(0, len(self.kept), _CHUNK_NODES):
                out[start : start + _CHUNK_NODES] = source[self.kept[start : start + _CHUNK_NODES]]

    def write_index(self, name: str) -> tuple[int, int]:
        """Write a split's nodes; returns how many stay and how many go."""
        index = self.new_id[self.store[name]]
        left = index[index >= 0]
        self.writer.write(name, left)
        return len(left), len(index) - len(left)

    def write_edges(self, split: str) -> tuple[int, int]:
        """Write a split's held-out (or training) edges and what goes with them; returns how many stay and go.

        An edge goes if one of its ends does.
        """
        pairs = self.new_id[self.store[f"{split}_edges"]]
        stay: NDArray[np.bool_] = np.all(pairs >= 0, axis=1)
        candidates = self.store.get(f"{split}_negative")
        if candidates is not None and candidates.ndim == 3:
            stay = self._write_candidates(f"{split}_negative", candidates, stay)
        elif candidates is not None:
            pool = self.new_id[candidates]
            self.writer.write(f"{split}_negative", pool[(pool >= 0).all(1)])
        self.writer.write(f"{split}_edges", pairs[stay])
        weight = self.store.get(f"{split}_edge_weight")
        if weight is not None:
            self.writer.write(f"{split}_edge_weight", weight[stay])
        return int(stay.sum()), int(len(stay) - stay.sum())

    def _write_candidates(self, name: str, candidates: Array, stay: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Candidates (n, K, 2) keep their number: one that goes is replaced by the row's next one that stays.

        An edge none of whose candidates stays has nothing to be ranked against, and goes too.
        """
        some, ids = replace_gone(self.new_id[candidates[stay]])
        self.writer.write(name, ids)
        stay = stay.copy()
        stay[stay] = some
        return stay
