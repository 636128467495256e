"""Reorder a graph so that every part is contiguous, array by array, in chunks, from memory map to memory map."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array, blocks, offsets, row_blocks
from tasks.storage.array_names import is_of_type
from tasks.storage.graph_store import EDGE_ARRAYS, NODE_ARRAYS, ArrayWriter, GraphStore
from tasks.storage.manifests import SPLITS
from tasks.transpose import transpose

_CHUNK_BYTES = 1 << 26
_ROWS_AHEAD = 4  # rows of a part lie some rows apart
_NODE_SPLITS = ("train_idx", "valid_idx", "test_idx")
_PAIRS = ("train_edges", "valid_edges", "test_edges", "valid_negative", "test_negative")
_UNCHANGED = (
    "relation_feat",
    *(f"{split}_{name}" for split in SPLITS for name in ("edge_weight", "relation", "negative_relation")),
)
_OF_TRAINING_EDGES = ("train_edge_weight", "train_relation")
_ADJACENCY = ("csc_indptr", "csc_indices", "csr_indptr", "csr_indices", "csr_eids")


@dataclass(frozen=True)
class Order:
    """A new order of the nodes: parts end to end, the old order within a part."""

    new_to_old: Array
    """id (N,)."""
    old_to_new: Array
    """id (N,)."""
    part: NDArray[np.int32]
    """Part of each node under its old id, (N,)."""
    part_offsets: NDArray[np.int64]
    """(num_parts + 1,): part p holds new ids part_offsets[p] to part_offsets[p + 1]."""


def order_by_part(part: NDArray[np.int32], num_parts: int, dtype: np.dtype[np.signedinteger]) -> Order:
    """Return the order that `part` asks for; `dtype` is that of node ids."""
    part_offsets = offsets(np.bincount(part, minlength=num_parts))
    new_to_old, old_to_new = np.empty(len(part), dtype), np.empty(len(part), dtype)
    _counting_sort(part, part_offsets[:-1].copy(), new_to_old, old_to_new)
    return Order(new_to_old, old_to_new, part, part_offsets)


def reorder(store: GraphStore, writer: ArrayWriter, order: Order) -> None:
    """Write every array of the graph in the new order.

    Memory: 8 to 16 bytes a node and a few chunks; the edges stay on disk.
    """
    names = set(store.manifest.arrays)
    of_types = {name for name in names if is_of_type(name)}
    for name in of_types:
        writer.link(name, store)
    names -= of_types
    known = {*NODE_ARRAYS, *EDGE_ARRAYS, *_NODE_SPLITS, *_PAIRS, *_UNCHANGED, *_ADJACENCY}
    assert names <= known, f"arrays that partition does not know how to reorder: {sorted(names - known)}"
    _reorder_adjacency(store, writer, order)
    for name in NODE_ARRAYS:
        if name in names:
            _gather(store[name], order.new_to_old, writer, name)
    for name in _NODE_SPLITS:
        if name in names:
            writer.write(name, np.sort(order.old_to_new[store[name]]))
    by_part = ("train_edges", *_OF_TRAINING_EDGES) if store.manifest.split_rows.are_links else ()
    if by_part:
        _write_by_part(store, writer, order)
    for name in _PAIRS:
        if name in names and name not in by_part:
            _gather(order.old_to_new, store[name], writer, name)
    for name in _UNCHANGED:  # of relations, and in the order of pairs, which stays
        if name in names and name not in by_part:
            writer.link(name, store)


def _write_by_part(store: GraphStore, writer: ArrayWriter, order: Order) -> None:
    """Write the training edges by the part of their targets, in their old order within a part: a part's are together.

    Memory: 8 bytes for each edge of a chunk.
    """
    edges, beside = store["train_edges"], {name: store[name] for name in _OF_TRAINING_EDGES if name in store}
    chunk = _CHUNK_BYTES // 16
    sizes = np.zeros(len(order.part_offsets) - 1, np.int64)
    for some in blocks(len(edges), chunk):
        sizes += np.bincount(order.part[edges[some, 1]], minlength=len(sizes))
    cursor = offsets(sizes)[:-1]
    written = writer.create("train_edges", edges.shape, edges.dtype)
    moved = {name: writer.create(name, values.shape, values.dtype) for name, values in beside.items()}
    for some in blocks(len(edges), chunk):
        ends = np.asarray(edges[some])
        places = np.empty(len(ends), np.int64)
        _next_places(order.part[ends[:, 1]], cursor, places)
        written[places] = order.old_to_new[ends]
        for name, values in beside.items():
            moved[name][places] = values[some]


@njit(cache=True, nogil=True)
def _next_places(parts: Array, cursor: Array, places: Array) -> None:
    """Fill places (n,) with the next free place of each one's part, which moves on."""
    for i in range(len(parts)):
        places[i] = cursor[parts[i]]
        cursor[parts[i]] += 1


def _reorder_adjacency(store: GraphStore, writer: ArrayWriter, order: Order) -> None:
    """Write CSC, edge data, and CSR where the graph has them."""
    names = store.manifest.arrays
    edge_arrays = [name for name in EDGE_ARRAYS if name in names]
    indptr, indices = _reorder_rows(store, writer, order, "csc", edge_arrays)
    out_indptr = indptr
    if "csr_indptr" in names:
        out_indptr, _ = _reorder_rows(store, writer, order, "csr", [])
    if "csr_eids" in names:
        eids = writer.create("csr_eids", (len(indices),), np.int64)
        transpose(indptr, indices, out_indptr[:-1].copy(), np.empty(0, indices.dtype), np.asarray(eids))


def _reorder_rows(
    store: GraphStore, writer: ArrayWriter, order: Order, layout: str, edge_arrays: list[str]
) -> tuple[Array, Array]:
    """Write one adjacency in the new order, and with it data that stands beside its entries."""
    old_indptr, old_indices = np.asarray(store[f"{layout}_indptr"]), np.asarray(store[f"{layout}_indices"])
    indptr = np.empty(len(old_indptr), np.int64)
    _new_offsets(old_indptr, order.new_to_old, indptr)
    writer.write(f"{layout}_indptr", indptr)
    indices = np.asarray(writer.create(f"{layout}_indices", old_indices.shape, old_indices.dtype))
    sources = {name: store[name] for name in edge_arrays}
    targets = {name: writer.create(name, array.shape, array.dtype) for name, array in sources.items()}
    row_bytes = 8 + max((array.nbytes // max(1, len(array)) for array in sources.values()), default=0)

    def fill(low: int, high: int) -> None:
        start, end = indptr[low], indptr[high]
        positions = np.empty(end - start if sources else 0, np.int64)
        permute_rows(
            old_indptr,
            old_indices,
            order.new_to_old[low:high],
            order.old_to_new,
            order.part,
            len(order.part_offsets) - 1,
            indices[start:end],
            positions,
        )
        for name, target in targets.items():
            target[start:end] = sources[name][positions]

    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        blocks_of_rows = row_blocks(indptr, max(1, _CHUNK_BYTES // row_bytes // threads))
        for job in [pool.submit(fill, low, high) for low, high in blocks_of_rows]:
            job.result()
    return indptr, indices


def _gather(source: Array, rows: Array, writer: ArrayWriter, name: str) -> None:
    """Write source[rows] in chunks; `rows` may have any shape, `source` one dimension then."""
    target = writer.create(name, (*rows.shape, *source.shape[1:]), source.dtype)
    row_bytes = 8 * max(1, rows[:1].size) * max(1, source[:1].size)
    for some in blocks(len(rows), max(1, _CHUNK_BYTES // row_bytes)):
        target[some] = source[rows[some]]


@njit(cache=True, nogil=True)
def _counting_sort(part: Array, cursor: Array, new_to_old: Array, old_to_new: Array) -> None:
    for v in range(len(part)):
        position = cursor[part[v]]
        cursor[part[v]] += 1
        new_to_old[position] = v
        old_to_new[v] = position


@njit(cache=True, nogil=True)
def _new_offsets(indptr: Array, rows: Array, new_indptr: Array) -> None:
    new_indptr[0] = 0
    for i in range(len(rows)):
        new_indptr[i + 1] = new_indptr[i] + indptr[rows[i] + 1] - indptr[rows[i]]


@njit(cache=True, nogil=True)
def permute_rows(
    indptr: Array,
    indices: Array,
    rows: Array,
    mapping: Array,
    part: Array,
    num_parts: int,
    out: Array,
    positions: Array,
) -> None:
    """Write mapping[indices] of the given rows end to end into `out`, ascending within a row.

    `positions` (same length, or empty if not wanted) receives where each entry stood. Equal neighbours keep
    their order. Old rows ascend and the new order keeps the old one within a part, so that a stable counting sort by
    part sorts a row; rows shorter than that pays for are sorted by insertion.
    """
    wanted = len(positions) > 0
    cursor = np.zeros(num_parts + 1, np.int64)
    start, num_rows, num_entries = 0, len(rows), len(indices)
    for i in range(num_rows):
        low, high = indptr[rows[i]], indptr[rows[i] + 1]
        later = indptr[rows[min(i + _ROWS_AHEAD, num_rows - 1)]]
        prefetch_item(indices, later)
        prefetch_item(indices, later + 16)
        soon = rows[min(i + 1, num_rows - 1)]
        for e in range(indptr[soon], min(indptr[soon + 1], indptr[soon] + AHEAD)):
            prefetch_item(mapping, np.int64(indices[e]))
        if high - low > 32 and 2 * (high - low) > num_parts:
            cursor[:] = 0
            for e in range(low, high):
                ahead = np.int64(indices[min(e + AHEAD, num_entries - 1)])
                prefetch_item(part, ahead)
                prefetch_item(mapping, ahead)
                cursor[part[indices[e]] + 1] += 1
            for p in range(num_parts):
                cursor[p + 1] += cursor[p]
            for e in range(low, high):
                u = indices[e]
                target = start + cursor[part[u]]
                cursor[part[u]] += 1
                out[target] = mapping[u]
                if wanted:
                    positions[target] = e
        else:
            for e in range(low, high):
                new = mapping[indices[e]]
                target = start + e - low
                while target > start and out[target - 1] > new:
                    out[target] = out[target - 1]
                    if wanted:
                        positions[target] = positions[target - 1]
                    target -= 1
                out[target] = new
                if wanted:
                    positions[target] = e
        start += high - low
