"""Leave whole components out of a graph: every array follows, and rows keep their order.

Memory: two ids a node for the renumbering, and a chunk.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import Array
from tasks.components.renumbering import NodeOrder, write_node_data, write_structure
from tasks.negatives import replace_gone
from tasks.storage.graph_store import SCORED_EDGE_ARRAYS, ArrayWriter, GraphStore


def write_graph(store: GraphStore, keep: NDArray[np.bool_], writer: ArrayWriter) -> tuple[Array, int]:
    """Write the structure of the nodes to keep, bool (N,), and what nodes and edges carry.

    Return the new id of each node, id (N,), -1 for those that go, and the number of edges.
    """
    id_type = store["csc_indices"].dtype
    kept = np.flatnonzero(keep).astype(id_type)
    new_id: Array = np.full(len(keep), -1, id_type)
    new_id[kept] = np.arange(len(kept), dtype=id_type)
    order = NodeOrder(kept, new_id, np.zeros(len(keep), np.int32), np.array([0, len(kept)]))
    num_edges = write_structure(store, writer, order)
    write_node_data(store, writer, order)
    return new_id, num_edges


def write_index(store: GraphStore, new_id: Array, writer: ArrayWriter, split: str) -> tuple[int, int]:
    """Write a split's nodes; return how many stay and how many go."""
    index = new_id[store[f"{split}_idx"]]
    left = index[index >= 0]
    writer.write(f"{split}_idx", left)
    return len(left), len(index) - len(left)


def write_scored_edges(store: GraphStore, new_id: Array, writer: ArrayWriter) -> Array:
    """Write what is known of the edges that are scored whose ends stay; return the new number of each, -1: it goes."""
    ends = new_id[store["edge_ends"]]
    kept = np.flatnonzero((ends >= 0).all(1))
    writer.write("edge_ends", ends[kept])
    for name in SCORED_EDGE_ARRAYS:
        values = store.get(name)
        if name == "edge_rows":
            writer.write(name, kept if values is None else values[kept])
        elif values is not None:
            writer.write(name, values[kept])
    number: Array = np.full(len(ends), -1, np.int64)
    number[kept] = np.arange(len(kept))
    return number


def write_edges(store: GraphStore, new_id: Array, writer: ArrayWriter, split: str) -> tuple[int, int]:
    """Write a split's edges and what goes with them; return how many stay and go: an edge goes with one of its ends.

    Candidates (n, K, 2) keep their number: one that goes is replaced by the row's next one that stays; an edge without
    any goes too.
    """
    pairs = new_id[store[f"{split}_edges"]]
    stay: NDArray[np.bool_] = np.all(pairs >= 0, axis=1)
    candidates = store.get(f"{split}_negative")
    if candidates is not None and candidates.ndim == 3:
        has_candidates, ids = replace_gone(new_id[candidates[stay]])
        writer.write(f"{split}_negative", ids)
        stay[stay] = has_candidates
    elif candidates is not None:
        pool = new_id[candidates]
        there = (pool >= 0).all(1)
        writer.write(f"{split}_negative", pool[there])
        relation = store.get(f"{split}_negative_relation")
        if relation is not None:
            writer.write(f"{split}_negative_relation", relation[there])
    writer.write(f"{split}_edges", pairs[stay])
    for name in (f"{split}_edge_weight", f"{split}_relation"):
        values = store.get(name)
        if values is not None:
            writer.write(name, values[stay])
    return int(stay.sum()), int(len(stay) - stay.sum())
