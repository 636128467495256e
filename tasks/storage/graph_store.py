"""A graph as memory-mapped arrays: what preprocess, components and partition write and training reads.

N nodes, E edges (as message passing sees them), D feature columns. Ids are int32 while they fit, else int64.

| array | dtype, shape | what |
|---|---|---|
| `csc_indptr` | int64 (N + 1,) | in-edges of node v are positions csc_indptr[v] to csc_indptr[v + 1] |
| `csc_indices` | id (E,) | source of each in-edge, ascending within a node |
| `csr_indptr`, `csr_indices` | as above | out-edges; absent if `symmetric` (the CSC arrays serve) |
| `csr_eids` | int64 (E,) | CSC position of each CSR edge; only where edges carry data |
| `edge_weight`, `edge_time`, `edge_type` | float32, int64, int16 (E,) | edge data in CSC order |
| `edge_feat`, `edge_feat_cat` | float (E, De), int32 (E, Ce) | edge features in CSC order |
| `feat` | float32/float16 (N, D) | numeric node features |
| `feat_cat` | int32 (N, C) | categorical codes; column j lies in 0..categories[j] - 1 |
| `feat of TYPE`, `feat_cat of TYPE` | (rows of the type, its columns) | instead, where rows are predicted at moments |
| `label` | int64 (N,) or float32 (N, T) | node labels; -1 or NaN: none |
| `node_type`, `node_time` | int16, int64 (N,) | |
| `node_ids` | int64 (N,) | id of each node in preprocess's id space (dense, types end to end) |
| `train_idx`, `valid_idx`, `test_idx` | id (n,) | nodes (node tasks) or graphs (graph tasks) of a split, ascending |
| `train_edges`, ... | id (n, 2) | positive edges of a split (link and triple tasks), source and target |
| `left_out_edges` | id (n, 2) | edges of no split, known all the same |
| `valid_negative`, `test_negative` | id (n, 2) or (n, K, 2) | given or drawn: one pool, or K for each positive |
| `train_edge_weight` | float32 (n,) | where the source gives one |
| `edge_role`, `edge_side` | uint8, id (N,) | link tasks: what training draws negatives from (`tasks/edge_ends.py`) |
| `train_relation`, ... | int32 (n,) | triple tasks: relations; `train_edges` are heads and tails |
| `relation_feat` | float32 (R, D) | triple tasks: features of relations |
| `graph_offsets` | int64 (G + 1,) | graph g holds nodes graph_offsets[g] to graph_offsets[g + 1] (graph tasks) |
| `graph_label` | int64 (G,) or float32 (G, T) | labels of graphs |

Triple tasks have `valid_negative` where the data set gives entities to rank against: K for each head and each tail.
In a partition a link task's training edges lie by the part of their target, so that a rank reads its own.
Edge tasks have a row for each edge of the table that has labels, M of them, and splits are numbers of these rows:

| array | dtype, shape | what |
|---|---|---|
| `edge_ends` | id (M, 2) | source and target |
| `edge_label` | int64 (M,) or float32 (M, T) | labels; -1 or NaN: none |
| `scored_feat`, `scored_feat_cat` | float (M, De), int32 (M, Ce) | the edges' own features, columns as in `edge_feat` |
| `edge_rows` | int64 (M,) | where the edge stands in the data set's table, if not all edges are in the graph |

On link tasks the graph holds the training edges only, and no pair that is held out (`preprocess/splits/held_out.py`).
On graph tasks all graphs lie end to end, so that a graph's nodes and its in-edges are contiguous.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import IntegrityError
from tasks.arrays import Array as Array
from tasks.storage.artifacts import MANIFEST_NAME, link_or_copy
from tasks.storage.file_names import file_name
from tasks.storage.home_files.fetched import here
from tasks.storage.manifests import ArrayEntry, GraphManifest, PartitionManifest

MISSING_IN_EDGES = "missing_in_edges"
"""float32 (N,), in a rank's part of a graph only: in-edges that each node has in the whole graph and not here."""
ALWAYS = -(1 << 62)
"""`node_time` and `edge_time` of what has no time of its own: it was always there."""
INT32_MAX = np.iinfo(np.int32).max
NODE_ARRAYS = ("feat", "feat_cat", "label", "node_type", "node_time", "node_ids", "edge_role", "edge_side")
"""Arrays with a row for each node."""
SCORED_EDGE_ARRAYS = ("edge_label", "scored_feat", "scored_feat_cat", "edge_rows")
"""Arrays with a row for each edge that is scored, beside `edge_ends`."""
EDGE_ARRAYS = ("edge_weight", "edge_time", "edge_type", "edge_feat", "edge_feat_cat")
"""Arrays with a row for each edge, in CSC order."""
_HEADER_BYTES = 4096
_SAME_IF_SYMMETRIC = {"csr_indptr": "csc_indptr", "csr_indices": "csc_indices"}


def id_dtype(num_ids: int) -> type[np.signedinteger[Any]]:
    """Return int32 while ids below `num_ids` fit, else int64."""
    return np.int32 if num_ids <= INT32_MAX else np.int64


class GraphStore:
    """Arrays of a graph by name, opened as memory maps when first asked for."""

    def __init__(self, folder: Path, manifest: GraphManifest) -> None:
        self.folder = folder
        self.manifest = manifest
        self._open: dict[str, Array] = {}

    @classmethod
    def open(cls, folder: Path) -> GraphStore:
        """Open a partition's artifact."""
        return cls(folder, PartitionManifest.model_validate_json(here(folder / MANIFEST_NAME).read_bytes()))

    def replace(self, name: str, array: Array) -> None:
        """Have another array in the place of a stored one."""
        self._open[name] = array

    def __contains__(self, name: str) -> bool:
        return self._resolve(name) in self.manifest.arrays

    def __getitem__(self, name: str) -> Array:
        """Return an array, memory-mapped read-only. Raises KeyError naming what there is."""
        name = self._resolve(name)
        if name not in self._open:
            entry = self.manifest.arrays.get(name)
            if entry is None:
                raise KeyError(f"the graph has no array {name!r}; it has {', '.join(sorted(self.manifest.arrays))}")
            self._open[name] = open_array(self.folder / entry.path, entry)
        return self._open[name]

    def get(self, name: str) -> Array | None:
        """Return an array or None."""
        return self[name] if name in self else None  # noqa: SIM401

    def rows_of(self, name: str, rows: Sequence[Array]) -> list[Array]:
        """Return rows of an array, for some lists of them."""
        table = self[name]
        return [np.asarray(table[some]) for some in rows]

    def training_rows(self) -> Array:
        """Return the rows of node arrays that the training nodes have."""
        return np.asarray(self["train_idx"])

    def _resolve(self, name: str) -> str:
        return _SAME_IF_SYMMETRIC.get(name, name) if self.manifest.symmetric else name


def open_array(path: Path, entry: ArrayEntry) -> Array:
    """Memory-map a `.npy` file. Raises IntegrityError unless dtype and shape are those of the manifest."""
    array: Array = np.load(here(path), mmap_mode="r" if 0 not in entry.shape else None, allow_pickle=False)
    if array.dtype != np.dtype(entry.dtype) or array.shape != entry.shape:
        raise IntegrityError(f"{path} holds {array.dtype} {array.shape}, the manifest says {entry.dtype} {entry.shape}")
    return array


def open_rows(path: Path, entry: ArrayEntry, start: int, stop: int) -> Array:
    """Memory-map rows start to stop - 1 of a `.npy` file; its other bytes may be missing (holes of a sparse file).

    Raises IntegrityError unless dtype and shape are those of the manifest, and the file is as long.
    """
    with here(path, 0, _HEADER_BYTES).open("rb") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
        begin = file.tell()
    if fortran or dtype != np.dtype(entry.dtype) or shape != entry.shape:
        raise IntegrityError(f"{path} holds {dtype} {shape}, the manifest says {entry.dtype} {entry.shape}")
    rows = (stop - start, *entry.shape[1:])
    if 0 in rows:
        return np.empty(rows, dtype)
    row_bytes = dtype.itemsize * math.prod(entry.shape[1:])
    offset = begin + start * row_bytes
    size, needed = path.stat().st_size, begin + entry.shape[0] * row_bytes
    if size < needed:
        raise IntegrityError(f"{path} has {size:,} bytes, {needed:,} were written")
    here(path, offset, offset + rows[0] * row_bytes)
    return np.memmap(path, dtype, "r", offset=offset, shape=rows)


def create_array(path: Path, shape: tuple[int, ...], dtype: Any) -> Array:
    """Return a new `.npy` file as a writable memory map (empty: plain memory); a full disk is an OSError here."""
    if 0 in shape:
        empty = np.empty(shape, dtype)
        np.save(path, empty)
        return empty
    array: Array = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
    with path.open("r+b") as file:
        os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


class ArrayWriter:
    """Writes the `.npy` files of a graph into an artifact's folder and remembers what they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.entries: dict[str, ArrayEntry] = {}

    def create(self, name: str, shape: tuple[int, ...], dtype: Any) -> Array:
        """Return a writable memory map to be filled in chunks (plain memory where the array is empty)."""
        return create_array(self._add(name, np.dtype(dtype).name, shape), shape, dtype)

    def write(self, name: str, array: Array) -> None:
        """Write a whole array."""
        np.save(self._add(name, array.dtype.name, array.shape), np.ascontiguousarray(array))

    def read(self, name: str) -> Array:
        """Return an array that was written, memory-mapped read-only."""
        return open_array(self.folder / self.entries[name].path, self.entries[name])

    def link_all(self, store: GraphStore) -> None:
        """Take over all arrays of another graph without copying them."""
        for name in store.manifest.arrays:
            self.link(name, store)

    def link(self, name: str, store: GraphStore) -> None:
        """Take over an unchanged array of another graph without copying it."""
        entry = store.manifest.arrays[name]
        link_or_copy(store.folder / entry.path, self._add(name, entry.dtype, entry.shape))

    def _add(self, name: str, dtype: str, shape: tuple[int, ...]) -> Path:
        self.entries[name] = ArrayEntry(path=f"{file_name(name)}.npy", dtype=dtype, shape=shape)
        return self.folder / self.entries[name].path
