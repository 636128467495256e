"""The graph before a partition, undirected and simple, and after it: which edges it cuts, every part contiguous."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array, blocks, offsets
from tasks.components.renumbering import CHUNK_BYTES, NodeOrder, gather, write_node_data, write_structure
from tasks.partition.base import Csr, WeightedCsr
from tasks.storage.graph_store import (
    EDGE_ARRAYS,
    NODE_ARRAYS,
    SCORED_EDGE_ARRAYS,
    ArrayWriter,
    GraphStore,
    create_array,
)
from tasks.storage.manifests import LEFT_OUT, SPLITS, is_of_type


def undirected(store: GraphStore, scratch: Path) -> Csr:
    """Return the graph with every edge in both rows, each neighbour once, without self-loops.

    A symmetric, simple graph is returned as it stands; any other is written into `scratch` as memory maps, one pass to
    count and one to fill.
    """
    indptr, indices = np.asarray(store["csc_indptr"]), np.asarray(store["csc_indices"])
    if store.manifest.symmetric and is_simple(indptr, indices):
        return Csr(indptr, indices)
    out_indptr, out_indices = np.asarray(store["csr_indptr"]), np.asarray(store["csr_indices"])
    union_indptr = np.zeros(len(indptr), np.int64)
    unite_rows(indptr, indices, out_indptr, out_indices, union_indptr, np.empty(0, indices.dtype))
    np.cumsum(union_indptr, out=union_indptr)
    total = int(union_indptr[-1])
    if total == 0:
        return Csr(union_indptr, np.empty(0, indices.dtype))
    union = create_array(scratch / "undirected.npy", (total,), indices.dtype)
    unite_rows(indptr, indices, out_indptr, out_indices, union_indptr, np.asarray(union))
    return Csr(union_indptr, np.asarray(union))


@njit(cache=True, nogil=True)
def is_simple(indptr: Array, indices: Array) -> bool:
    """Whether no row names its own node or a neighbour twice (rows ascend)."""
    for v in range(len(indptr) - 1):
        last = -1
        for e in range(indptr[v], indptr[v + 1]):
            u = indices[e]
            if u in (v, last):
                return False
            last = u
    return True


@njit(cache=True, nogil=True)
def unite_rows(
    in_indptr: Array, in_indices: Array, out_indptr: Array, out_indices: Array, indptr: Array, indices: Array
) -> None:
    """Write the distinct neighbours of each node v, itself excluded, from indices[indptr[v]] on. Rows ascend.

    Where `indices` is empty, their number is written to indptr[v + 1] instead.
    """
    for v in range(len(in_indptr) - 1):
        a, a_end = in_indptr[v], in_indptr[v + 1]
        b, b_end = out_indptr[v], out_indptr[v + 1]
        last = -1
        count = 0
        while a < a_end or b < b_end:
            if b >= b_end or (a < a_end and in_indices[a] <= out_indices[b]):
                u = in_indices[a]
                a += 1
            else:
                u = out_indices[b]
                b += 1
            if u != last and u != v:
                if len(indices) > 0:
                    indices[indptr[v] + count] = u
                count += 1
            last = u
        if len(indices) == 0:
            indptr[v + 1] = count


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


@njit(cache=True, nogil=True)
def weighted_cut(graph: WeightedCsr, part: Array) -> int:
    """Return the weight of entries whose ends lie in two parts (each edge of an undirected graph counts twice)."""
    indptr, indices, edge_weight = graph
    cut, last = 0, len(indices) - 1
    weighted = len(edge_weight) > 0
    for v in range(len(part)):
        for e in range(indptr[v], indptr[v + 1]):
            prefetch_item(part, np.int64(indices[min(e + AHEAD, last)]))
            if part[indices[e]] != part[v]:
                cut += edge_weight[e] if weighted else 1
    return cut


def count_cut(indptr: Array, indices: Array, part: Array) -> int:
    """Return how many entries of the adjacency join two parts."""
    return int(weighted_cut(WeightedCsr(indptr, indices, np.empty(0, np.int32)), part))


@njit(cache=True, nogil=True)
def cut_matrix(indptr: Array, indices: Array, part: Array, num_parts: int) -> Array:
    """Return int64 (num_parts, num_parts): edges from part (row: source) to part (column: target) of a CSC."""
    matrix, last = np.zeros((num_parts, num_parts), np.int64), len(indices) - 1
    for v in range(len(indptr) - 1):
        p = part[v]
        for e in range(indptr[v], indptr[v + 1]):
            prefetch_item(part, np.int64(indices[min(e + AHEAD, last)]))
            matrix[part[indices[e]], p] += 1
    return matrix
