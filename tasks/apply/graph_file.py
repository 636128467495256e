"""A preprocessed graph as a file for DGL or PyG, which the data sets `dgl` and `pyg` read again, in their names.

PyG's is what `HeteroData.to_dict()` or `Data.to_dict()` gives, by `torch.save`: plain dictionaries of tensors, which no
version of PyG outgrows. Edges are those that messages pass along, in CSC order; labels and masks of graphs, and the
pairs of link tasks (`train_edges`, `valid_negative`, ...), are named tensors of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from configs.errors import DataError
from models.dgl.adapter import PlainGraph, save_graphs
from tasks.storage.artifacts import empty_draft, output_errors
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.file_names import beside
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.ids import IdMap
from tasks.storage.manifests import SPLITS, GraphManifest, TypeColumns, array_of_type

if TYPE_CHECKING:
    from torch import Tensor

_NODE_FIELDS = {"feat": "feat", "feat_cat": "feat_cat", "node_time": "time"}
_EDGE_FIELDS = {"edge_feat": "feat", "edge_feat_cat": "feat_cat", "edge_weight": "weight", "edge_time": "time"}
_MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
_PAIRS = (*(f"{split}_edges" for split in SPLITS), "valid_negative", "test_negative")
_OF_NODES = {"feat": "x", "feat_cat": "x_cat", "label": "y"}
_OF_EDGES = {"feat": "edge_attr", "feat_cat": "edge_cat", "weight": "edge_weight", "time": "edge_time"}
_MAX_ID_BYTES = 1 << 31
_ONE = ("_N", "_E", "_N")


def write_dgl(store: GraphStore, dataset: DatasetStore, path: Path) -> dict[str, int]:
    """Write a preprocessed graph as a file, whole or not at all; returns how many nodes, edges and graphs.

    The file is made in memory. `dataset`, which the graph was made of, has the users' ids. Raises RecipeError: DGL is
    not installed; DataError: ids that are too long for a tensor; StageError: the disk is full.
    """
    manifest = store.manifest
    labels = {name: _tensor(store[name]) for name in _PAIRS if name in store}
    ids = IdMap(store, dataset)
    if manifest.split_rows.are_graphs:
        count = manifest.num_graphs
        labels["label"] = _tensor(store["graph_label"])
        labels["original_id"] = _ids(ids.lookup_graphs(np.arange(count)), "graphs")
        labels |= _masks(store, count, np.arange(count))
        graphs = _parts(store)
    elif len(manifest.node_types) == len(manifest.edge_types) == 1:
        graphs = iter([_homogeneous(store, ids)])
    else:
        graphs = iter([_typed(store, ids)])
    return _write(manifest, path, lambda draft: save_graphs(draft, graphs, labels))


def write_pyg(store: GraphStore, dataset: DatasetStore, path: Path) -> dict[str, int]:
    """As `write_dgl`, for PyG: for `HeteroData.from_dict`, or `Data.from_dict` where there is one type of each.

    Raises DataError for graph tasks, and for ids that are too long for a tensor.
    """
    import torch

    manifest = store.manifest
    if manifest.split_rows.are_graphs:
        raise DataError(f"{manifest.dataset} is many graphs, and the file for PyG holds one; take --format dgl")
    ids = IdMap(store, dataset)
    one = len(manifest.node_types) == len(manifest.edge_types) == 1
    graph = _homogeneous(store, ids) if one else _typed(store, ids)
    stores: dict[Any, dict[str, Any]] = {}
    for kind, data in graph.ndata.items():
        stores[kind] = {"num_nodes": graph.num_nodes[kind], **{_OF_NODES.get(k, k): v for k, v in data.items()}}
    for triplet, edges in graph.edges.items():
        src, dst = edges
        if one:  # CSC: indptr, indices
            src, dst = edges[1], torch.repeat_interleave(torch.arange(len(edges[0]) - 1), edges[0].diff())
        data = {_OF_EDGES.get(name, name): value for name, value in graph.edata[triplet].items()}
        stores[triplet] = {"edge_index": torch.stack([src, dst]), **data}
    pairs = {name: _tensor(store[name]) for name in _PAIRS if name in store}
    content: dict[Any, Any] = {**stores["_N"], **stores[_ONE], **pairs} if one else stores
    return _write(manifest, path, lambda draft: torch.save(content, draft))


def _write(manifest: GraphManifest, path: Path, write: Callable[[Path], None]) -> dict[str, int]:
    draft = beside(path, ".partial")
    with output_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write(empty_draft(path))
            draft.replace(path)
        finally:
            draft.unlink(missing_ok=True)
    return {"nodes": manifest.num_nodes, "edges": manifest.num_edges, "graphs": manifest.num_graphs}


def _homogeneous(store: GraphStore, ids: IdMap) -> PlainGraph:
    n = store.manifest.num_nodes
    ndata = {**_fields(store, _NODE_FIELDS, None), **_targets(store, np.arange(n))}
    ndata["original_id"] = _ids(ids.lookup(np.arange(n)), store.manifest.node_types[0])
    csc = _tensor(store["csc_indptr"]), _tensor(store["csc_indices"]).long()
    return PlainGraph({"_N": n}, {_ONE: csc}, {"_N": ndata}, {_ONE: _fields(store, _EDGE_FIELDS, None)})


def _parts(store: GraphStore) -> Iterator[PlainGraph]:
    """Yield the graphs of a graph task; each one's nodes and in-edges are contiguous."""
    indptr, indices, offsets = (np.asarray(store[name]) for name in ("csc_indptr", "csc_indices", "graph_offsets"))
    for first, last in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        nodes, edges = slice(first, last), slice(int(indptr[first]), int(indptr[last]))
        csc = _tensor(indptr[first : last + 1] - indptr[first]), _tensor(indices[edges] - first).long()
        data = {"_N": _fields(store, _NODE_FIELDS, nodes)}, {_ONE: _fields(store, _EDGE_FIELDS, edges)}
        yield PlainGraph({"_N": last - first}, {_ONE: csc}, *data)


def _typed(store: GraphStore, ids: IdMap) -> PlainGraph:
    """Return a graph of several types or relations: nodes of a type in their order, edges in CSC order."""
    manifest = store.manifest
    n = manifest.num_nodes
    kind_of = np.zeros(n, np.int64) if "node_type" not in store else np.asarray(store["node_type"], np.int64)
    nodes = {kind: np.flatnonzero(kind_of == number) for number, kind in enumerate(manifest.node_types)}
    place = np.empty(n, np.int64)
    ndata: dict[str, dict[str, Tensor]] = {}
    for kind, members in nodes.items():
        place[members] = np.arange(len(members))
        ndata[kind] = _fields(store, _NODE_FIELDS, members, manifest.type_columns.get(kind))
        ndata[kind] |= _own_features(store, kind, members)
        ndata[kind]["original_id"] = _ids(ids.lookup(members), kind)
        if kind == manifest.target_type and manifest.split_rows.are_nodes:
            ndata[kind] |= _targets(store, members)
    src = np.asarray(store["csc_indices"], np.int64)
    dst = np.repeat(np.arange(n), np.diff(store["csc_indptr"]))
    relation = np.zeros(len(src), np.int64) if "edge_type" not in store else np.asarray(store["edge_type"], np.int64)
    # A relation such as self_loop joins several pairs of types: DGL calls each pair a relation of its own.
    key = (relation * len(nodes) + kind_of[src]) * len(nodes) + kind_of[dst]
    edges, edata = {}, {}
    for value in np.unique(key).tolist():
        chosen = np.flatnonzero(key == value)
        rest, target = divmod(value, len(nodes))
        number, source = divmod(rest, len(nodes))
        ends = manifest.node_types[source], manifest.node_types[target]
        name = manifest.edge_types[number].removeprefix(f"{ends[0]}__").removesuffix(f"__{ends[1]}")
        triplet = (ends[0], name, ends[1])
        edges[triplet] = _tensor(place[src[chosen]]), _tensor(place[dst[chosen]])
        columns = manifest.relation_columns.get(manifest.edge_types[number])
        edata[triplet] = _fields(store, _EDGE_FIELDS, chosen, columns)
    return PlainGraph({kind: len(members) for kind, members in nodes.items()}, edges, ndata, edata)


def _fields(store: GraphStore, names: dict[str, str], rows: Any, of: TypeColumns | None = None) -> dict[str, Tensor]:
    """Return what nodes or edges carry, all rows or some; of features the columns `of` their type."""
    fields = {}
    for name, field in names.items():
        if name not in store:
            continue
        array = store[name] if rows is None else store[name][rows]
        if of is not None and array.ndim == 2:
            array = array[:, list(of.categorical if name.endswith("_cat") else of.numeric)]
            if not array.shape[1]:
                continue
        fields[field] = _tensor(array)
    return fields


def _own_features(store: GraphStore, kind: str, nodes: Array) -> dict[str, Tensor]:
    """Return the features of nodes of a type that has matrices of its own."""
    features = {name: store.get(array_of_type(name, kind)) for name in ("feat", "feat_cat")}
    tables = {name: table for name, table in features.items() if table is not None}
    if not tables:
        return {}
    rows = store["node_ids"][nodes] - store.manifest.type_offsets[store.manifest.node_types.index(kind)]
    return {name: _tensor(table[rows]) for name, table in tables.items()}


def _targets(store: GraphStore, nodes: Array) -> dict[str, Tensor]:
    """Return labels and masks of some nodes, on node tasks."""
    if not store.manifest.split_rows.are_nodes:
        return {}
    return {"label": _tensor(store["label"][nodes]), **_masks(store, store.manifest.num_nodes, nodes)}


def _masks(store: GraphStore, count: int, rows: Array) -> dict[str, Tensor]:
    masks = {}
    for split, field in _MASKS.items():
        if f"{split}_idx" in store:
            mask = np.zeros(count, bool)
            mask[store[f"{split}_idx"]] = True
            masks[field] = _tensor(mask[rows])
    return masks


def _ids(ids: pa.Array, owner: str) -> Tensor:
    """Return users' ids as a tensor: int64 (n,), or UTF-8 bytes (n, width) padded with 0."""
    if pa.types.is_integer(ids.type):
        return _tensor(ids.to_numpy(zero_copy_only=False).astype(np.int64))
    texts = np.array([text.encode() for text in ids.to_pylist()], "S")
    if texts.nbytes > _MAX_ID_BYTES:
        raise DataError(f"the longest id of {owner} has {texts.itemsize:,} bytes, too many for a row of a tensor each")
    return _tensor(texts.view(np.uint8).reshape(len(texts), -1))


def _tensor(array: Array) -> Tensor:
    import torch

    return torch.from_numpy(np.array(array))  # a copy: the artifact's own memory is read-only
