"""Reorder a graph so that every part is contiguous."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from tasks.arrays import Array, blocks, offsets
from tasks.components.renumbering import CHUNK_BYTES, NodeOrder, gather, write_node_data, write_structure
from tasks.storage.graph_store import EDGE_ARRAYS, NODE_ARRAYS, SCORED_EDGE_ARRAYS, ArrayWriter, GraphStore
from tasks.storage.manifests import LEFT_OUT, SPLITS, is_of_type

_NODE_SPLITS = ("train_idx", "valid_idx", "test_idx")
_PAIRS = ("edge_ends", *(f"{split}_edges" for split in (*SPLITS, LEFT_OUT)), "valid_negative", "test_negative")
_UNCHANGED = tuple(
    f"{split}_{name}" for split in SPLITS for name in ("edge_weight", "relation", "negative_relation")
)  # of relations, and in the order of pairs, which stays
_OF_TRAINING_EDGES = ("train_edge_weight", "train_relation")
_ADJACENCY = ("csc_indptr", "csc_indices", "csr_indptr", "csr_indices", "csr_eids")


def order_by_part(part: NDArray[np.int32], num_parts: int, dtype: np.dtype[np.signedinteger]) -> NodeOrder:
    """Return the order that `part` asks for; `dtype` is that of node ids."""
    part_offsets = offsets(np.bincount(part, minlength=num_parts))
    old_to_new = _next_places(part, part_offsets[:-1].copy()).astype(dtype)
    new_to_old = np.empty(len(part), dtype)
    new_to_old[old_to_new] = np.arange(len(part), dtype=dtype)
    return NodeOrder(new_to_old, old_to_new, part, part_offsets)


def reorder(store: GraphStore, writer: ArrayWriter, order: NodeOrder) -> None:
    """Write every array of the graph in the new order.

    Memory: 8 to 16 bytes a node and a few chunks; the edges stay on disk.
    """
    names = {name for name in store.manifest.arrays if not is_of_type(name)}
    unchanged = (*_UNCHANGED, *SCORED_EDGE_ARRAYS, *(_NODE_SPLITS if store.manifest.split_rows.are_edges else ()))
    handled = {*NODE_ARRAYS, *EDGE_ARRAYS, *_NODE_SPLITS, *_PAIRS, *unchanged, *_ADJACENCY, "relation_feat"}
    assert names <= handled, f"arrays that partition does not know how to reorder: {sorted(names - handled)}"
    write_structure(store, writer, order)
    write_node_data(store, writer, order)
    for name in _NODE_SPLITS:
        if name in names and name not in unchanged:
            writer.write(name, np.sort(order.old_to_new[store[name]]))
    by_part = ("train_edges", *_OF_TRAINING_EDGES) if store.manifest.split_rows.are_links else ()
    if by_part:
        _write_by_part(store, writer, order)
    for name in _PAIRS:
        if name in names and name not in by_part:
            gather(order.old_to_new, store[name], writer, name)
    for name in unchanged:
        if name in names and name not in by_part:
            writer.link(name, store)


def _write_by_part(store: GraphStore, writer: ArrayWriter, order: NodeOrder) -> None:
    """Write the training edges by the part of their targets, in their old order within a part: a part's are together.

    Memory: 8 bytes for each edge of a chunk.
    """
    edges, beside = store["train_edges"], {name: store[name] for name in _OF_TRAINING_EDGES if name in store}
    chunk = CHUNK_BYTES // 16
    sizes = np.zeros(len(order.part_offsets) - 1, np.int64)
    for some in blocks(len(edges), chunk):
        sizes += np.bincount(order.part[edges[some, 1]], minlength=len(sizes))
    cursor = offsets(sizes)[:-1]
    written = writer.create("train_edges", edges.shape, edges.dtype)
    moved = {name: writer.create(name, values.shape, values.dtype) for name, values in beside.items()}
    for some in blocks(len(edges), chunk):
        ends = np.asarray(edges[some])
        places = _next_places(order.part[ends[:, 1]], cursor)
        written[places] = order.old_to_new[ends]
        for name, values in beside.items():
            moved[name][places] = values[some]


@njit(cache=True, nogil=True)
def _next_places(parts: Array, cursor: Array) -> Array:
    """Return the next free place of each one's part, int64 (n,), which moves on: a counting sort."""
    places = np.empty(len(parts), np.int64)
    for i in range(len(parts)):
        places[i] = cursor[parts[i]]
        cursor[parts[i]] += 1
    return places
