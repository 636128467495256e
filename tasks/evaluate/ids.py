"""From ids of the trained graph back to the users' own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tasks.dataset_store import DatasetStore
from tasks.evaluate.metrics import Array
from tasks.graph_store import GraphStore


class IdMap:
    """Looks up the users' ids of graph nodes; where a data set has none, the ids within the node type serve."""

    def __init__(self, graph: GraphStore, dataset: DatasetStore | None) -> None:
        """`graph` is what was trained on (reordered, filtered); `dataset` is what was ingested."""
        self._graph = graph
        self._dataset = dataset
        self._tables: dict[str, pa.ChunkedArray | None] = {}
        self._offsets = np.asarray(graph.manifest.type_offsets)

    def lookup(self, nodes: Array) -> pa.Array:
        """Return original ids of graph nodes (n,): their own type where all are of one node type, else strings.

        (Where types mix, `TYPE:ID` tells them apart.)
        """
        dense = self._dense(nodes)
        types = np.searchsorted(self._offsets, dense, side="right") - 1
        present = np.unique(types)
        if len(present) <= 1:
            return self._of_type(int(present[0]) if len(present) else 0, dense)
        result = np.empty(len(nodes), object)
        for number in present:
            rows = np.flatnonzero(types == number)
            name = self._graph.manifest.node_types[number]
            own = self._of_type(int(number), dense[rows]).to_pylist()
            result[rows] = [f"{name}:{value}" for value in own]
        return pa.array(result, pa.string())

    def lookup_graphs(self, graphs: Array) -> pa.Array:
        """Return original ids of graphs (n,); their numbers where a data set has no others."""
        numbers = pa.array(np.asarray(graphs, np.int64))
        table = self._column("ids/graphs")
        return numbers if table is None else _combined(table.take(numbers))

    def of_target_type(self, nodes: Array) -> Array:
        """Return which of the nodes are of the type that carries labels: bool (n,)."""
        manifest = self._graph.manifest
        number = manifest.node_types.index(manifest.target_type)
        dense = self._dense(nodes)
        return (dense >= self._offsets[number]) & (dense < self._offsets[number + 1])

    def _dense(self, nodes: Array) -> Array:
        """Return ids in preprocess's space: dense, node types end to end."""
        ids = self._graph.get("node_ids")
        return np.asarray(nodes if ids is None else ids[nodes], np.int64)

    def _of_type(self, number: int, dense: Array) -> pa.Array:
        within = dense - int(self._offsets[number])
        table = self._column(f"ids/{self._graph.manifest.node_types[number]}")
        return pa.array(within, pa.int64()) if table is None else _combined(table.take(pa.array(within)))

    def _column(self, table: str) -> pa.ChunkedArray | None:
        if table not in self._tables:
            known = self._dataset is not None and table in self._dataset
            self._tables[table] = self._dataset.read(table, ["original_id"]).column(0) if known else None  # type: ignore[union-attr]
        return self._tables[table]


def _combined(column: Any) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def class_names(dataset: DatasetStore | None) -> list[str] | None:
    """Return the names of the classes in order of their index, where the data set kept them (table `classes`)."""
    if dataset is None or "classes" not in dataset:
        return None
    return [str(name) for name in dataset.read("classes", ["name"]).column("name").to_pylist()]
