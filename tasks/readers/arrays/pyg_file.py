"""A graph of PyG in a file of `torch.save`, read without PyG and torch: what it names is never imported nor run.

`HeteroData` and `Data` keep a store of arrays for each type of nodes and of edges. What their pickles name of PyG gets
stand-ins here that hold what the pickle gives them; any other name is refused (`torch_files.py`). What
`to_dict()` gives holds the same without names.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from tasks.arrays import Array
from tasks.readers.arrays.dgl_file import SavedGraph, SavedGraphs, Triplet
from tasks.readers.arrays.torch_files import load_torch
from tasks.readers.limits import MAX_COUNT, check_memory

_ONE = ("_N", "_E", "_N")
_NODE_BYTES = 24  # of a node without anything, while tables are written


class _Held:
    """Stands for any object of PyG: keeps its state."""

    state: Mapping[str, Any] = {}

    def __setstate__(self, state: Any) -> None:
        self.state = state if isinstance(state, Mapping) else {}


_NAMES = {
    "hetero_data": ("HeteroData",),
    "data": ("Data", "DataEdgeAttr", "DataTensorAttr"),
    "storage": ("BaseStorage", "NodeStorage", "EdgeStorage", "GlobalStorage"),
    "graph_store": ("EdgeAttr",),
    "feature_store": ("TensorAttr",),
}
_STAND_INS = {(f"torch_geometric.data.{module}", name): _Held for module, names in _NAMES.items() for name in names}


def read_pyg_file(path: Path, fields: Collection[str], ids: str = "original_id") -> SavedGraphs:
    """Read a file as a whole; one graph, and the arrays that belong to it as a whole as labels.

    `fields`: names of what is read of nodes and edges; others that have a row for each of them come along. `ids`: the
    one among them that may be a list of texts; it becomes their bytes, uint8 (rows, width).

    Raises DataError: it holds something else, or is damaged; a type whose count nothing says; counts that differ.
    """
    try:
        return _Graph(path, set(fields), ids).read(load_torch(path, _STAND_INS))
    except DataError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:  # a damaged pickle can put anything anywhere
        raise DataError(f"is damaged ({str(error)[:200]}); fetch it again", path=path) from error


class _Graph:
    def __init__(self, path: Path, fields: set[str], ids: str) -> None:
        self.path, self.fields, self.ids = path, fields, ids

    def read(self, loaded: Any) -> SavedGraphs:
        if isinstance(loaded, tuple) and len(loaded) in (2, 3) and loaded[1] is None:
            loaded = loaded[0]  # a processed data set of one graph: (data, no slices[, class])
        if isinstance(loaded, (list, tuple)):
            raise DataError("holds many graphs; one is read here, many by the data set dgl", path=self.path)
        stores = _stores(loaded)
        if stores is None:
            why = "holds no graph of PyG; save a HeteroData or a Data, or its to_dict(): torch.save(data, PATH)"
            raise DataError(why, path=self.path)
        general, nodes, edges = stores
        graph = SavedGraph({}, {}, {}, {})
        shared = _ONE in edges  # of a Data, nodes and edges are in one store
        for triplet, store in edges.items():
            graph.edges[triplet] = self.ends(store, " ".join(triplet))
        for kind in [*nodes, *sorted({end for s, _, t in edges for end in (s, t)} - set(nodes))]:
            count = self.count(nodes.get(kind, {}), kind)
            graph.num_nodes[kind] = count
            of_edges = {len(graph.edges[_ONE][0])} if shared else set()
            graph.ndata[kind] = self.arrays(nodes.get(kind, {}), count, f"nodes of {kind}", of_edges)
        for triplet, store in edges.items():
            of_edges_alone = {
                name: value for name, value in store.items() if not shared or name not in graph.ndata["_N"]
            }
            of_nodes = set(graph.num_nodes.values()) if shared else set()
            owner = f"edges of {' '.join(triplet)}"
            graph.edata[triplet] = self.arrays(of_edges_alone, len(graph.edges[triplet][0]), owner, of_nodes)
        if not graph.edges or not graph.num_nodes:
            raise DataError("has no edges (edge_index)", path=self.path)
        taken = {"edge_index", *(graph.ndata["_N"] | graph.edata[_ONE] if shared else ())}
        labels = {name: value for name, value in general.items() if _is_array(value) and name not in taken}
        return SavedGraphs([graph], labels)

    def ends(self, store: Mapping[str, Any], name: str) -> tuple[Array, Array]:
        """Return int64 (m,) sources and destinations."""
        pairs = store.get("edge_index")
        place = f"{self.path}[edges of {name}['edge_index']]"
        if pairs is None or not _is_array(pairs):
            raise DataError("is missing; edges are read from edge_index (2, m), not from adj_t", path=place)
        if pairs.ndim != 2 or len(pairs) != 2 or pairs.dtype.kind not in "iu":
            why = f"has the shape {pairs.shape} of {pairs.dtype}; whole numbers (2, m) are needed"
            raise DataError(why, path=place)
        return np.ascontiguousarray(pairs[0], np.int64), np.ascontiguousarray(pairs[1], np.int64)

    def count(self, store: Mapping[str, Any], kind: str) -> int:
        """Return how many nodes a type has: what it says, else the rows of what is read of it."""
        given = store.get("num_nodes")
        if given is not None:
            if isinstance(given, bool) or not isinstance(given, (int, np.integer)) or not 0 <= given <= MAX_COUNT:
                raise DataError(f"nodes of {kind} say num_nodes={given!r}", path=self.path)
            check_memory(_NODE_BYTES * int(given), f"{int(given):,} nodes of {kind}", self.path)
            return int(given)
        rows = {
            name: len(value)
            for name, value in store.items()
            if name in self.fields and _is_array(value) and not name.startswith("edge_")
        }
        if not rows:
            why = f"nothing says how many nodes of {kind} there are; set data[{kind!r}].num_nodes before saving"
            raise DataError(why, path=self.path)
        return next(iter(rows.values()))

    def arrays(self, store: Mapping[str, Any], count: int, owner: str, others: set[int]) -> dict[str, Array]:
        """Return what has a row for each node or edge.

        `others`: rows of what else is in the store. Raises DataError for a field that is read and has other rows.
        """
        arrays = {}
        for name, given in store.items():
            is_list = name in self.fields and isinstance(given, (list, tuple))
            value = self.listed(given, name, owner) if is_list else given
            if name in ("edge_index", "num_nodes") or not _is_array(value):
                continue
            if len(value) == count and value.dtype.kind in "biuf":
                arrays[name] = np.asarray(value)
            elif name in self.fields and len(value) not in others:
                why = f"has the shape {value.shape} of {value.dtype}; numbers with {count:,} rows are needed"
                raise DataError(why, path=f"{self.path}[{owner}[{name!r}]]")
        return arrays

    def listed(self, values: Sequence[Any], name: str, owner: str) -> Array:
        """Return what a tensor cannot hold and came as a list: ids that are texts. Raises DataError for any other."""
        place = f"{self.path}[{owner}[{name!r}]]"
        if name != self.ids or not values or not all(isinstance(value, str) for value in values):
            texts = f", or a list of texts as {self.ids}" if name == self.ids else ""
            raise DataError(f"is a list; save a tensor of numbers{texts}", path=place)
        encoded = [value.encode() for value in values]
        width = max(1, *map(len, encoded))
        if any(value.endswith(b"\0") for value in encoded):  # what fills up is no part of a text
            raise DataError("has a text that ends with a zero byte; ids are texts without", path=place)
        check_memory(width * len(encoded), f"{len(encoded):,} ids of up to {width:,} bytes", self.path)
        return np.array(encoded, f"S{width}").view(np.uint8).reshape(len(encoded), width)


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def _stores(loaded: Any) -> tuple[dict[str, Any], dict[str, Any], dict[Triplet, Any]] | None:
    """Return the stores of the graph itself, of types of nodes and of types of edges; None where it is no graph."""
    if isinstance(loaded, _Held):
        state = loaded.state
        if "_node_store_dict" in state:
            parts = {**state["_node_store_dict"], **state.get("_edge_store_dict", {})}
            return _by_type(_mapping(state.get("_global_store")), {key: _mapping(one) for key, one in parts.items()})
        loaded = _mapping(state.get("_store"))
    if not isinstance(loaded, Mapping):
        return None
    plain = {key: _mapping(value) if isinstance(value, (Mapping, _Held)) else value for key, value in loaded.items()}
    if "edge_index" in plain:
        return plain, {"_N": plain}, {_ONE: plain}
    general = plain.pop("_global_store", {})
    parts = {key: value for key, value in plain.items() if isinstance(value, dict)}
    return _by_type(general, parts) if any(isinstance(key, tuple) for key in parts) else None


def _by_type(general: dict[str, Any], parts: dict[Any, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[Any, Any]]:
    nodes = {key: value for key, value in parts.items() if isinstance(key, str)}
    edges = {
        key: value
        for key, value in parts.items()
        if isinstance(key, tuple) and len(key) == 3 and all(isinstance(word, str) for word in key)
    }
    return general, nodes, edges


def _mapping(store: Any) -> dict[str, Any]:
    held = store.state.get("_mapping", {}) if isinstance(store, _Held) else store
    if not isinstance(held, Mapping):
        return {}
    # NumPy's arrays come wrapped.
    return {str(key): np.asarray(value) if hasattr(value, "__array__") else value for key, value in held.items()}
