"""Leave nodes out of a graph: every array follows.

The nodes left out are whole components, so all edges of a kept node stay, and rows keep their order.
Memory: two ids a node for the renumbering, and a chunk.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array
from tasks.components.renumbering import NodeOrder, write_node_data, write_structure
from tasks.negatives import replace_gone
from tasks.storage.graph_store import ArrayWriter, GraphStore


class NodeFilter:
    """Writes the subgraph of the kept nodes."""

    def __init__(self, store: GraphStore, keep: NDArray[np.bool_], writer: ArrayWriter) -> None:
        """`keep` is bool (N,)."""
        self.store, self.writer = store, writer
        id_type = store["csc_indices"].dtype
        self.kept = np.flatnonzero(keep).astype(id_type)
        self.new_id: Array = np.full(len(keep), -1, id_type)
        self.new_id[self.kept] = np.arange(len(self.kept), dtype=id_type)

    def write_graph(self) -> int:
        """Write the structure, and what nodes and edges carry; returns the number of edges."""
        one_part = np.array([0, len(self.kept)])
        order = NodeOrder(self.kept, self.new_id, np.zeros(len(self.new_id), np.int32), one_part)
        num_edges = write_structure(self.store, self.writer, order)
        write_node_data(self.store, self.writer, order)
        return num_edges

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
