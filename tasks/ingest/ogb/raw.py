"""Where the raw files of a folder in OGB's layout lie: CSV or binary, one type of node or many."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from configs.errors import DataError
from configs.source_files import is_file, is_folder, names_in
from tasks.arrays import Array
from tasks.ingest.ogb.meta import OgbMeta
from tasks.ingest.raw_rows import CsvRows, NpyRows, RawRows
from tasks.readers.arrays.npy import NpyFile, member_names
from tasks.readers.limits import MAX_COUNT, MAX_GRAPHS
from tasks.readers.numbers import checked_cast, read_numbers
from tasks.readers.streams import read_words
from tasks.storage.file_names import is_file_name

Triplet = tuple[str, str, str]
# The one type of node and edge of a homogeneous graph.
NODE, EDGE = "node", ("node", "to", "node")


class Raw:
    """The raw files of a data set. Names are those of OGB's CSV files: feat, label, node_year, edge_weight, ..."""

    count_file: str
    """File that says how many nodes and edges there are."""
    num_nodes: dict[str, Array]
    """Node type to nodes of each graph, int64 (num_graphs,)."""
    num_edges: dict[Triplet, Array]
    mapping_names = "nodeidx2*.csv.gz"
    """Pattern of the files under mapping/ that hold original ids of a node type, which stands for {}."""

    def __init__(self, folder: Path) -> None:
        """`folder` is the data set's; reads the counts."""
        self.folder, self.raw = folder, folder / "raw"

    def node_rows(self, kind: str, what: str) -> RawRows | None:
        """Return rows of one node type: `feat`, `label` or an additional file; None where there are none."""
        raise NotImplementedError

    def edge_rows(self, triplet: Triplet, what: str) -> RawRows | None:
        """Return rows of one edge type: `edge` (m, 2), `feat` or an additional file."""
        raise NotImplementedError

    def graph_labels(self) -> RawRows | None:
        """Return the labels of graphs."""
        return None


def open_raw(folder: Path, meta: OgbMeta) -> Raw:
    """Open raw/ in whatever format it is. Raises DataError listing everything that is missing."""
    raw = folder / "raw"
    if is_file(raw / "data.npz"):
        return BinaryRaw(folder)
    if is_file(raw / "triplet-type-list.csv.gz"):
        return HeteroCsvRaw(folder)
    needed = ["edge.csv.gz", "num-node-list.csv.gz", "num-edge-list.csv.gz"]
    needed += ["node-feat.csv.gz"] if meta.has_node_features else []
    needed += ["edge-feat.csv.gz"] if meta.has_edge_features else []
    needed += [f"{meta.task}-label.csv.gz"] if meta.task in ("node", "graph") else []
    missing = [name for name in needed if not is_file(raw / name)]
    if missing:
        there = ", ".join(sorted(path.name for path in names_in(raw))) if is_folder(raw) else "nothing"
        mend = "add what is missing"
        if meta.listed:
            mend = f"move the folder away and run again to download it from {meta.url}"
        raise DataError(f"is incomplete: raw/ lacks {', '.join(missing)} (it has {there}); {mend}", path=folder)
    return CsvRaw(folder)


def _counts(path: Path) -> Array:
    return _checked_counts(read_numbers(path, np.int64, num_columns=1, most=MAX_GRAPHS)[:, 0], path)


def _checked_counts(counts: Array, path: object) -> Array:
    if len(counts) == 0 or (counts < 0).any():
        raise DataError("needs one count (>= 0) a graph", path=path)
    if counts.sum(dtype=np.float64) > MAX_COUNT:
        row = int(np.argmax(counts))
        why = f"counts {counts.sum(dtype=np.float64):,.0f}, more than any graph has ({MAX_COUNT:,})"
        raise DataError(why, path=path, row=row)
    return counts


def _csv(folder: Path, what: str, prefix: str) -> RawRows | None:
    """Open a file of nodes or edges (`prefix`); None where there is none."""
    path = folder / {"feat": f"{prefix}-feat.csv.gz", "label": f"{prefix}-label.csv.gz"}.get(what, f"{what}.csv.gz")
    return CsvRows(path) if is_file(path) else None


class CsvRaw(Raw):
    """One type of node and edge in `raw/*.csv.gz`, one graph or many."""

    count_file = "num-node-list.csv.gz"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        edge_counts = self.raw / "num-edge-list.csv.gz"
        self.num_nodes, self.num_edges = {NODE: _counts(self.raw / self.count_file)}, {EDGE: _counts(edge_counts)}
        nodes, edges = len(self.num_nodes[NODE]), len(self.num_edges[EDGE])
        if nodes != edges:
            raise DataError(f"counts edges of {edges:,} graphs, {self.count_file} nodes of {nodes:,}", path=edge_counts)

    def node_rows(self, kind: str, what: str) -> RawRows | None:
        """See Raw; ogbn-proteins calls node_species species."""
        rows = _csv(self.raw, what, "node")
        return _csv(self.raw, "species", "node") if rows is None and what == "node_species" else rows

    def edge_rows(self, triplet: Triplet, what: str) -> RawRows | None:
        """See Raw."""
        return _csv(self.raw, what, "edge")

    def graph_labels(self) -> RawRows | None:
        """See Raw."""
        return _csv(self.raw, "label", "graph")


class HeteroCsvRaw(Raw):
    """Several types of nodes and edges, as ogbn-mag has them."""

    count_file = "num-node-dict.csv.gz"
    mapping_names = "{}_entidx2*.csv.gz"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        path = self.raw / self.count_file
        header, *rows = read_words(path)
        if len(rows) != 1:
            raise DataError(f"has counts of {len(rows)} graphs; a data set with types has one graph", path=path)
        self.num_nodes = {}
        for column, kind in enumerate(header):
            _check_name(kind, "node type", path=path, column=column)
            try:
                count = int(float(rows[0][column]))
            except (IndexError, ValueError, OverflowError):
                raise DataError("needs one count a node type", path=path, row=0, column=column) from None
            if not 0 <= count <= MAX_COUNT:
                why = f"counts {count:,} nodes; 0 to {MAX_COUNT:,} are possible"
                raise DataError(why, path=path, row=0, column=column)
            self.num_nodes[kind] = np.array([count], np.int64)
        self.num_edges = {}
        for row, line in enumerate(read_words(self.raw / "triplet-type-list.csv.gz")):
            self._add_triplet(row, line)

    def _add_triplet(self, row: int, line: list[str]) -> None:
        path = self.raw / "triplet-type-list.csv.gz"
        if len(line) != 3:
            raise DataError(f"has {len(line)} columns; source, relation and target are needed", path=path, row=row)
        for column in (0, 2):
            if line[column] not in self.num_nodes:
                types = ", ".join(sorted(self.num_nodes))
                why = f"unknown node type {line[column]!r}; known: {types}"
                raise DataError(why, path=path, row=row, column=column)
        triplet = (line[0], line[1], line[2])
        _check_name("___".join(triplet), "edge type", path=path, row=row)
        folder = self.raw / "relations" / "___".join(triplet)
        missing = [name for name in ("edge.csv.gz", "num-edge-list.csv.gz") if not is_file(folder / name)]
        if missing:
            raise DataError(f"is incomplete: lacks {' and '.join(missing)}", path=folder)
        self.num_edges[triplet] = _counts(folder / "num-edge-list.csv.gz")

    def node_rows(self, kind: str, what: str) -> RawRows | None:
        """See Raw."""
        folder = self.raw / "node-label" / kind if what == "label" else self.raw / "node-feat" / kind
        return _csv(folder, what, "node")

    def edge_rows(self, triplet: Triplet, what: str) -> RawRows | None:
        """See Raw."""
        return _csv(self.raw / "relations" / "___".join(triplet), what, "edge")


class BinaryRaw(Raw):
    """One type of node and edge in `raw/data.npz`, as ogbn-papers100M has it."""

    count_file = "num_nodes_list"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.file = self.raw / "data.npz"
        self.members = set(member_names(self.file))
        missing = {"edge_index", "num_nodes_list", "num_edges_list"} - self.members
        if missing:
            raise DataError(f"lacks {', '.join(sorted(missing))}", path=self.file)
        self.num_nodes = {NODE: self._counts("num_nodes_list")}
        self.num_edges = {EDGE: self._counts("num_edges_list")}
        if len(self.num_nodes[NODE]) != len(self.num_edges[EDGE]):
            raise DataError("num_nodes_list and num_edges_list differ in length", path=self.file)

    def _counts(self, name: str) -> Array:
        file = NpyFile(self.file, name)
        if math.prod(file.header().shape) > MAX_GRAPHS:
            raise DataError(f"has more than {MAX_GRAPHS:,} counts", path=file.name)
        counts = file.read().reshape(-1)
        return _checked_counts(checked_cast(counts[:, None], np.int64, file.name)[:, 0], file.name)

    def node_rows(self, kind: str, what: str) -> RawRows | None:
        """See Raw."""
        if what == "label":
            path = self.file.with_name("node-label.npz")
            return NpyRows(path, "node_label") if is_file(path) else None
        name = "node_feat" if what == "feat" else what
        return NpyRows(self.file, name) if name in self.members else None

    def edge_rows(self, triplet: Triplet, what: str) -> RawRows | None:
        """See Raw."""
        name = {"edge": "edge_index", "feat": "edge_feat"}.get(what, what)
        return NpyRows(self.file, name, transposed=what == "edge") if name in self.members else None


def _check_name(name: str, what: str, **where: Any) -> None:
    """Refuse a type that names no folder here: OGB's layout has a folder of that name."""
    if not is_file_name(name):
        raise DataError(f"the {what} {name!r} cannot name a folder; rename it, and its folders under raw/", **where)


def labelled_types(path: Path) -> list[str]:
    """Return the node types that `nodetype-has-label.csv.gz` (or has-split) marks as true."""
    header, *rows = read_words(path)
    if len(rows) != 1 or len(rows[0]) != len(header):
        raise DataError("needs a header of node types and one row of True and False", path=path)
    return [kind for kind, cell in zip(header, rows[0], strict=True) if cell.strip().lower() in ("true", "1")]
