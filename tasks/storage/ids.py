"""From ids of the trained graph back to the users' own."""

from __future__ import annotations

import hashlib
import json
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as compute
from numpy.typing import NDArray

from configs.errors import DataError
from tasks.arrays import Array, blocks
from tasks.readers.columns import first_not_whole, to_int64
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import EDGE_IDS, EDGE_LABELS, DatasetManifest

AT_MOMENTS = ("entity", "moment")
"""Columns that tell apart what `ENTITY@MOMENT` has in one."""
_CHUNK = 1 << 20


class IdMap:
    """Looks up the users' ids of graph nodes; where a data set has none, the ids within the node type serve."""

    def __init__(self, graph: GraphStore, dataset: DatasetStore | None) -> None:
        """`graph` is what was trained on (reordered, filtered); `dataset` is what was ingested."""
        self._graph = graph
        self._dataset = dataset
        self._tables: dict[tuple[str, str], pa.ChunkedArray | None] = {}
        self._offsets = np.asarray(graph.manifest.type_offsets)

    def lookup(self, nodes: Array, *, typed: bool = False) -> pa.Array:
        """Return original ids of graph nodes (n,): their own type where all are of one node type, else strings.

        Where types mix, the strings are `TYPE:ID`; with `typed` also where they do not.
        """
        dense = self.dense(nodes)
        types = self._types(dense)
        present = np.unique(types)
        if len(present) <= 1 and not typed:
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

    def columns(self, nodes: Array, name: str = "id") -> dict[str, pa.Array]:
        """Return what names nodes (n,) in a file: the column `name` of original ids; at moments `entity`, `moment`.

        Where ids name several nodes each, also `row` (of `source`: `source_row`): the number among those of the type.
        """
        table = {name: self.lookup(nodes)} | self._entities(nodes)
        if self._ids_repeat:
            dense = self.dense(nodes)
            types = self._types(dense)
            table["row" if name == "id" else f"{name}_row"] = pa.array(dense - self._offsets[types])
        return table

    def _entities(self, nodes: Array) -> dict[str, pa.Array]:
        """Return `entity` and `moment` of nodes that have both, all of which are of the type that is predicted."""
        table = f"ids/{self._graph.manifest.target_type}"
        if self._dataset is None or not at_moments(self._dataset, table):
            return {}
        if not self.of_target_type(nodes).all():
            return {}
        rows = pa.array(self.rows(nodes))
        return {name: _combined(self._column(table, name).take(rows)) for name in AT_MOMENTS}  # type: ignore[union-attr]

    @cached_property
    def _ids_repeat(self) -> bool:
        tables = [self._column(f"ids/{kind}") for kind in self._graph.manifest.node_types]
        return any(ids is not None and compute.count_distinct(ids).as_py() < len(ids) for ids in tables)

    def graph_columns(self, graphs: Array) -> dict[str, pa.Array]:
        """Return what names graphs (n,) in a file: `graph_id`, which may repeat, and `row`, the graph's number."""
        return {"graph_id": self.lookup_graphs(graphs), "row": pa.array(np.asarray(graphs, np.int64))}

    def edge_columns(self, edges: Array) -> dict[str, pa.Array]:
        """Return what names scored edges (n,) in a file: `edge_id`, if they have one, ends, `row` of their table."""
        ends, rows = self._graph["edge_ends"][edges], self._graph.get("edge_rows")
        places = pa.array(np.asarray(edges if rows is None else rows[edges], np.int64))
        columns: dict[str, pa.Array] = {}
        if self._dataset is not None:
            kind = self._dataset.manifest.labelled_edges.name
            ids = self._column(f"{EDGE_IDS}/{kind}")
            columns = {} if ids is None else {"edge_id": _combined(ids.take(places))}
            row = self._column(f"{EDGE_LABELS}/{kind}", "row")
            places = places if row is None else _combined(row.take(places))
        source, target = (self.columns(ends[:, end], name) for end, name in enumerate(("source", "target")))
        return columns | source | target | {"row": places}

    def find(self, ids: pa.Array, kind: str, rows: Array | None = None, row_column: str = "row") -> Array:
        """Return a type's nodes by original ids (n,): int64 (n,); -1: not known, -2: left out of the graph.

        `rows`, `row_column` and what raises: see `find_rows`.
        """
        nodes = self.nodes_of_type(kind, left_out=-2)
        count = len(nodes)
        if self._dataset is not None:
            count = next(t.num_nodes for t in self._dataset.manifest.node_types if t.name == kind)
        rows = find_rows(self._dataset, f"ids/{kind}", count, ids, rows, row_column)
        # A snapshot's graph does not know how many nodes the data set has.
        nearest = nodes[np.minimum(rows, len(nodes) - 1)]
        return np.where(rows < 0, -1, np.where(rows < len(nodes), nearest, -2))

    def nodes_of_type(self, kind: str, left_out: int | None = None) -> Array:
        """Return a type's nodes in the data set's order, int64 (n,); those not in the graph as `left_out`, if given."""
        number = self._graph.manifest.node_types.index(kind)
        first, last = (int(self._offsets[number + step]) for step in (0, 1))
        nodes = np.full(last - first, -1 if left_out is None else left_out, np.int64)
        for part in blocks(self._graph.manifest.num_nodes, _CHUNK):
            some = np.arange(part.start, part.stop)
            dense = self.dense(some)
            inside = (dense >= first) & (dense < last)
            nodes[dense[inside] - first] = some[inside]
        return nodes if left_out is not None else nodes[nodes >= 0]

    def type_numbers(self) -> NDArray[np.int32]:
        """Return the place in the graph's node types of each node, (N,)."""
        types = np.empty(self._graph.manifest.num_nodes, np.int32)
        for part in blocks(len(types), _CHUNK):
            types[part] = self._types(self.dense(np.arange(part.start, part.stop)))
        return types

    def of_target_type(self, nodes: Array) -> Array:
        """Return which of the nodes are of the type that carries labels: bool (n,)."""
        return np.asarray(self._types(self.dense(nodes)) == self._target)

    def rows(self, nodes: Array) -> Array:
        """Return where nodes of the type that carries labels stand in the data set's table of it: int64 (n,)."""
        return self.dense(nodes) - self._offsets[self._target]

    def kind(self, nodes: Array) -> str:
        """Return the type of the first of some nodes."""
        return self._graph.manifest.node_types[int(self._types(self.dense(nodes[:1]))[0])]

    def dense(self, nodes: Array) -> Array:
        """Return ids in preprocess's space: dense, node types end to end."""
        ids = self._graph.get("node_ids")
        return np.asarray(nodes if ids is None else ids[nodes], np.int64)

    @property
    def _target(self) -> int:
        return self._graph.manifest.node_types.index(self._graph.manifest.target_type)

    def _types(self, dense: Array) -> Array:
        return np.searchsorted(self._offsets, dense, side="right") - 1

    def _of_type(self, number: int, dense: Array) -> pa.Array:
        within = dense - int(self._offsets[number])
        table = self._column(f"ids/{self._graph.manifest.node_types[number]}")
        return pa.array(within, pa.int64()) if table is None else _combined(table.take(pa.array(within)))

    def _column(self, table: str, column: str = "original_id") -> pa.ChunkedArray | None:
        if (table, column) not in self._tables:
            known = self._dataset is not None and table in self._dataset
            self._tables[table, column] = self._dataset.read(table, [column]).column(0) if known else None  # type: ignore[union-attr]
        return self._tables[table, column]


def at_moments(dataset: DatasetStore, table: str) -> bool:
    """Whether an id table (`ids/TYPE`) is of entities at moments: their `original_id` is `ENTITY@MOMENT`."""
    return table in dataset and set(AT_MOMENTS) <= set(dataset.table(table).columns)


def relation_names(dataset: DatasetStore) -> pa.Array:
    """Return the names of a knowledge graph's relations, by their numbers."""
    return _combined(dataset.read("relations", ["name"]).column("name"))


def find_rows(
    dataset: DatasetStore | None,
    table: str,
    count: int,
    ids: pa.Array,
    rows: Array | None = None,
    row_column: str = "row",
) -> Array:
    """Return the row of each original id (n,) in an id table: int64 (n,), -1 where it is not there.

    Without such a table the rows' numbers, below `count`, serve as ids. `rows`, int64 (n,), says which of several rows
    with one id is meant, `row_column` what messages call it. Memory: what the ids take, and a piece of the table.

    Raises DataError: texts are asked for, and the ids are numbers; an id stands in several rows, and `rows` does not
    tell which of them is meant.
    """
    if dataset is None or table not in dataset:
        numbers = np.asarray(as_kind(ids, pa.int64()))
        return np.where((numbers >= 0) & (numbers < count), numbers, -1)
    search: _Found | None = None
    for first, group in dataset.row_groups(table, ["original_id"]):
        ids_of_group = group.column(0)
        search = search or _Found(as_kind(ids, ids_of_group.type), rows, row_column)
        search.read(ids_of_group, first)
    return np.full(len(ids), -1, np.int64) if search is None else search.rows()


class _Found:
    """Rows of an id table by the ids asked for, while the table streams by."""

    def __init__(self, ids: pa.Array, wanted: Array | None, row_column: str) -> None:
        """`wanted` int64 (n,): which of an id's rows is meant, where it has several."""
        self._row_column = row_column
        self.ids, self._distinct = ids, compute.unique(ids)
        self._code = np.asarray(compute.index_in(ids, value_set=self._distinct))
        self._row = np.full(len(self._distinct), -1, np.int64)
        self._times = np.zeros(len(self._distinct), np.int64)
        self._wanted = np.full(len(ids), -1, np.int64) if wanted is None else wanted
        self._right = np.zeros(len(ids), np.bool_)  # whether the id does stand in the row that is wanted

    def read(self, known: pa.ChunkedArray, first: int) -> None:
        """Take the rows first, first + 1, ... of the table."""
        code = np.asarray(compute.fill_null(compute.index_in(known, value_set=self._distinct), -1))
        at = np.flatnonzero(code >= 0)
        self._row[code[at]] = at + first
        self._times += np.bincount(code[at], minlength=len(self._times))
        inside = np.flatnonzero((self._wanted >= first) & (self._wanted < first + len(code)))
        self._right[inside] = code[self._wanted[inside] - first] == self._code[inside]

    def rows(self) -> Array:
        """Return the row of each id, -1 where it has none. Raises DataError where it is not clear which is meant."""
        several = self._times[self._code] > 1
        unclear = np.flatnonzero(several & ~self._right)
        if len(unclear):
            place = int(unclear[0])
            raise DataError(
                f"{self.ids[place].as_py()!r} (row {place}) names {int(self._times[self._code[place]]):,} of them; say "
                f"which in a column {self._row_column}, as files of predictions have it"
            )
        return np.where(several, self._wanted, self._row[self._code])


def as_kind(ids: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return ids as an id table has them: whole numbers or texts. Raises DataError."""
    if ids.type == kind:
        return ids
    try:
        return to_int64(ids) if kind == pa.int64() else ids.cast(kind)
    except pa.ArrowInvalid:
        text = ids[first_not_whole(ids)].as_py()
        raise DataError(f"{text!r} is no id here: the ids of this data are whole numbers of 64 bits") from None


def _combined(column: Any) -> pa.Array:
    combined = column.combine_chunks()
    return combined if isinstance(combined, pa.Array) else pa.concat_arrays(combined.chunks)


def tables_give_ids(manifest: DatasetManifest, kind: str) -> bool:
    """Whether the data is of users' tables, in which the nodes of a type have ids."""
    options = manifest.config.get("dataset", {})
    if options.get("name") != "tables":
        return False
    nodes = [one for one in options.get("nodes") or () if one["type"] == kind]
    # Ids 0, 1, 2, ... need no table, and are the user's own too.
    return all(one["id"] is not None or one["count"] is not None for one in nodes)


def has_own_ids(manifest: DatasetManifest, kind: str) -> bool:
    """Whether the ids of a type's nodes are the users' own; else they are numbers in this data's order."""
    return f"ids/{kind}" in manifest.tables or tables_give_ids(manifest, kind)


def structure_digest(manifest: DatasetManifest) -> str:
    """Return a digest of the nodes' number and the edges: equal where the numbers of two data sets name the same."""
    counts = [[one.name, one.num_nodes] for one in manifest.node_types]
    tables = [f"edges/{one.name}" for one in manifest.edge_types]
    files = [[name, [manifest.files[path].sha256 for path in manifest.tables[name].shards]] for name in tables]
    return hashlib.sha256(json.dumps([counts, files]).encode()).hexdigest()


def class_names(dataset: DatasetStore | None) -> list[str] | None:
    """Return the names of the classes in order of their index, where the data set kept them (table `classes`)."""
    if dataset is None or "classes" not in dataset:
        return None
    return [str(name) for name in dataset.read("classes", ["name"]).column("name").to_pylist()]
