"""Nodes under new numbers, some of them left out: every array follows, in chunks, from memory map to memory map."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

from models.kernels.simd.prefetch import AHEAD
from models.kernels.simd.vector import prefetch_item
from tasks.arrays import Array, blocks, row_blocks
from tasks.storage.graph_store import EDGE_ARRAYS, NODE_ARRAYS, ArrayWriter, GraphStore
from tasks.storage.manifests import is_of_type
from tasks.transpose import transpose

CHUNK_BYTES = 1 << 26
_ROWS_AHEAD = 4  # rows of a part lie some rows apart


@dataclass(frozen=True)
class NodeOrder:
    """New numbers for n of N nodes: parts end to end, the old order within a part."""

    new_to_old: Array
    """id (n,)."""
    old_to_new: Array
    """id (N,); -1: left out, with all its edges."""
    part: NDArray[np.int32]
    """Part of each node under its old id, (N,)."""
    part_offsets: NDArray[np.int64]
    """(num_parts + 1,): part p holds new ids part_offsets[p] to part_offsets[p + 1]."""


def write_structure(store: GraphStore, writer: ArrayWriter, order: NodeOrder) -> int:
    """Write CSC, CSR, the way between them, and edge data; return the number of edges."""
    names = store.manifest.arrays
    indptr, indices = _write_direction(store, writer, order, "csc", [name for name in EDGE_ARRAYS if name in names])
    out_indptr = indptr
    if "csr_indptr" in names:
        out_indptr, _ = _write_direction(store, writer, order, "csr", [])
    if "csr_eids" in names:
        eids = writer.create("csr_eids", (len(indices),), np.int64)
        transpose(indptr, indices, out_indptr[:-1].copy(), np.empty(0, indices.dtype), np.asarray(eids))
    return len(indices)


def write_node_data(store: GraphStore, writer: ArrayWriter, order: NodeOrder) -> None:
    """Write the nodes' rows; relations all stay, and the rows of types that have matrices of their own."""
    for name in store.manifest.arrays:
        if name == "relation_feat" or is_of_type(name):
            writer.link(name, store)
        elif name in NODE_ARRAYS:
            gather(store[name], order.new_to_old, writer, name)


def gather(source: Array, rows: Array, writer: ArrayWriter, name: str) -> None:
    """Write source[rows] in chunks; `rows` may have any shape, `source` one dimension then."""
    target = writer.create(name, (*rows.shape, *source.shape[1:]), source.dtype)
    row_bytes = 8 * max(1, rows[:1].size) * max(1, source[:1].size)
    for some in blocks(len(rows), max(1, CHUNK_BYTES // row_bytes)):
        target[some] = source[rows[some]]


def _write_direction(
    store: GraphStore, writer: ArrayWriter, order: NodeOrder, direction: str, edge_arrays: list[str]
) -> tuple[Array, Array]:
    old_indptr, old_indices = np.asarray(store[f"{direction}_indptr"]), np.asarray(store[f"{direction}_indices"])
    indptr = np.empty(len(order.new_to_old) + 1, np.int64)
    _new_offsets(old_indptr, order.new_to_old, indptr)
    writer.write(f"{direction}_indptr", indptr)
    size = int(indptr[-1])
    indices = np.asarray(writer.create(f"{direction}_indices", (size,), old_indices.dtype))
    sources = {name: store[name] for name in edge_arrays}
    targets = {name: writer.create(name, (size, *array.shape[1:]), array.dtype) for name, array in sources.items()}
    row_bytes = 8 + max((array.nbytes // max(1, len(array)) for array in sources.values()), default=0)

    def fill(low: int, high: int) -> None:
        start, end = indptr[low], indptr[high]
        positions = np.empty(end - start if sources else 0, np.int64)
        rows = order.new_to_old[low:high]
        num_parts = len(order.part_offsets) - 1
        out = indices[start:end]
        permute_rows(old_indptr, old_indices, rows, order.old_to_new, order.part, num_parts, out, positions)
        for name, target in targets.items():
            target[start:end] = sources[name][positions]

    threads = os.cpu_count() or 1
    with ThreadPoolExecutor(threads) as pool:
        blocks_of_rows = row_blocks(indptr, max(1, CHUNK_BYTES // row_bytes // threads))
        for job in [pool.submit(fill, low, high) for low, high in blocks_of_rows]:
            job.result()
    return indptr, indices


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

    `positions` (same length, or empty) receives where each entry stood; equal neighbours keep their order. A stable
    counting sort by part sorts a row; short ones are sorted by insertion.
    """
    with_positions = len(positions) > 0
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
                if with_positions:
                    positions[target] = e
        else:
            for e in range(low, high):
                new = mapping[indices[e]]
                target = start + e - low
                while target > start and out[target - 1] > new:
                    out[target] = out[target - 1]
                    if with_positions:
                        positions[target] = positions[target - 1]
                    target -= 1
                out[target] = new
                if with_positions:
                    positions[target] = e
        start += high - low
