"""Leave nodes out of a graph: every array follows, in chunks, from memory map to memory map.

The nodes left out are whole components, so all edges of a kept node stay, and rows keep their order.
Memory: one id a node for the renumbering, and a chunk.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.arrays import Array, blocks, offsets, row_blocks
from tasks.negatives import replace_gone
from tasks.storage.array_names import is_of_type
from tasks.storage.graph_store import EDGE_ARRAYS, NODE_ARRAYS, ArrayWriter, GraphStore
from tasks.transpose import transpose

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
        """Write CSC, CSR, the way between them and edge data; returns the number of edges."""
        indptr, indices = self._write_direction("csc")
        out_indptr = indptr
        if "csr_indptr" in self.store.manifest.arrays:
            out_indptr, _ = self._write_direction("csr")
        if "csr_eids" in self.store:
            eids = self.writer.create("csr_eids", (len(indices),), np.int64)
            transpose(indptr, indices, out_indptr[:-1].copy(), np.empty(0, indices.dtype), np.asarray(eids))
        self._write_edge_data(indptr)
        return len(indices)

    def _write_direction(self, name: str) -> tuple[Array, Array]:
        indptr, indices = np.asarray(self.store[f"{name}_indptr"]), np.asarray(self.store[f"{name}_indices"])
        out_indptr = offsets(indptr[self.kept.astype(np.int64) + 1] - indptr[self.kept])
        out = np.asarray(self.writer.create(f"{name}_indices", (int(out_indptr[-1]),), self.id_type))
        _copy_rows(indptr, indices, self.kept, self.new_id, out_indptr, out)
        self.writer.write(f"{name}_indptr", out_indptr)
        return out_indptr, out

    def _write_edge_data(self, out_indptr: Array) -> None:
        """Edge data lies in CSC order: gather the kept rows' positions, some rows at a time."""
        indptr = np.asarray(self.store["csc_indptr"])
        sources = {name: self.store[name] for name in EDGE_ARRAYS if name in self.store}
        size = int(out_indptr[-1])
        outs = {name: self.writer.create(name, (size, *x.shape[1:]), x.dtype) for name, x in sources.items()}
        for start, end in row_blocks(out_indptr, _CHUNK_EDGES) if outs else ():
            first, last = int(out_indptr[start]), int(out_indptr[end])
            shift = indptr[self.kept[start:end]] - out_indptr[start:end]
            positions = np.arange(first, last) + np.repeat(shift, np.diff(out_indptr[start : end + 1]))
            for name, out in outs.items():
                out[first:last] = sources[name][positions]

    def write_node_data(self) -> None:
        """Copy the rows of kept nodes; relations all stay, and the rows of types that have matrices of their own."""
        for name in self.store.manifest.arrays:
            if name == "relation_feat" or is_of_type(name):
                self.writer.link(name, self.store)
        for name in NODE_ARRAYS:
            source = self.store.get(name)
            if source is not None:
                out = self.writer.create(name, (len(self.kept), *source.shape[1:]), source.dtype)
                for rows in blocks(len(self.kept), _CHUNK_NODES):
                    out[rows] = source[self.kept[rows]]

    def write_index(self, split: str) -> tuple[int, int]:
        """Write a split's nodes; returns how many stay and how many go."""
        index = self.new_id[self.store[f"{split}_idx"]]
        left = index[index >= 0]
        self.writer.write(f"{split}_idx", left)
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
            there = (pool >= 0).all(1)
            self.writer.write(f"{split}_negative", pool[there])
            relation = self.store.get(f"{split}_negative_relation")
            if relation is not None:
                self.writer.write(f"{split}_negative_relation", relation[there])
        self.writer.write(f"{split}_edges", pairs[stay])
        for name in (f"{split}_edge_weight", f"{split}_relation"):
            values = self.store.get(name)
            if values is not None:
                self.writer.write(name, values[stay])
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
