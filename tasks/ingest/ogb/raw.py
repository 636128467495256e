"""Where the raw files of a folder in OGB's layout lie: CSV or binary, one type of node or many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from configs.errors import DataError
from configs.source_files import is_file, is_folder, names_in
from tasks.arrays import Array
from tasks.ingest.ogb.meta import OgbMeta
from tasks.ingest.ogb.raw_rows import CsvRows, NpyRows, Rows, checked_cast
from tasks.readers.limits import MAX_COUNT, MAX_GRAPHS
from tasks.readers.npy import NpyFile, member_names
from tasks.readers.numbers.reader import read_numbers
from tasks.readers.streams import read_words
from tasks.storage.file_names import is_file_name

Triplet = tuple[str, str, str]
# The one type of node and edge of a homogeneous graph.
NODE, EDGE = "node", ("node", "to", "node")


class Raw(Protocol):
    """The raw files of a data set. Names are those of OGB's CSV files: feat, label, node_year, edge_weight, ..."""

    folder: Path
    count_file: str
    """File that says how many nodes and edges there are."""
    num_nodes: dict[str, Array]
    """Node type to nodes of each graph, int64 (num_graphs,)."""
    num_edges: dict[Triplet, Array]

    def node_rows(self, kind: str, what: str) -> Rows | None:
        """Return rows of one node type: `feat`, `label` or an additional file; None where there are none."""
        ...

    def edge_rows(self, triplet: Triplet, what: str) -> Rows | None:
        """Return rows of one edge type: `edge` (m, 2), `feat` or an additional file."""
        ...

    def graph_labels(self) -> Rows | None:
        """Return the labels of graphs."""
        ...

    def mapping_names(self, kind: str) -> Sequence[str]:
        """Return patterns of the files under mapping/ that hold original ids of a node type."""
        ...


def open_raw(folder: Path, meta: OgbMeta) -> Raw:
    """Open raw/ in whatever format it is. Raises DataError listing everything that is missing."""
    raw = folder / "raw"
    if is_file(raw / "data.npz"):
        return BinaryRaw(folder)
    if is_file(raw / "triplet-type-list.csv.gz"):
        return HeteroCsvRaw(folder)
    missing = [name for name in _needed(raw, meta) if not is_file(raw / name)]
    if missing:
        there = ", ".join(sorted(path.name for path in names_in(raw))) if is_folder(raw) else "nothing"
        mend = (
            f"move the folder away and run again to download it from {meta.url}"
            if meta.listed
            else "add what is missing"
        )
        raise DataError(f"is incomplete: raw/ lacks {', '.join(missing)} (it has {there}); {mend}", path=folder)
    return CsvRaw(folder)


def _needed(raw: Path, meta: OgbMeta) -> list[str]:
    names = ["edge.csv.gz", "num-node-list.csv.gz", "num-edge-list.csv.gz"]
    if meta.has_node_features:
        names.append("node-feat.csv.gz")
    if meta.has_edge_features:
        names.append("edge-feat.csv.gz")
    return names + {"node": ["node-label.csv.gz"], "graph": ["graph-label.csv.gz"], "link": []}[meta.task]


def _counts(path: Path) -> Array:
    return _checked_counts(read_numbers(path, np.int64, num_columns=1, most=MAX_GRAPHS)[:, 0], path)


def _checked_counts(counts: Array, path: object) -> Array:
    """Return counts of nodes or edges, one a graph, int64 (num_graphs,). Raises DataError where they cannot be."""
    if len(counts) == 0 or (counts < 0).any():
        raise DataError("needs one count (>= 0) a graph", path=path)
    if counts.sum(dtype=np.float64) > MAX_COUNT:
        row = int(np.argmax(counts))
        raise DataError(
            f"counts {counts.sum(dtype=np.float64):,.0f}, more than any graph has ({MAX_COUNT:,})", path=path, row=row
        )
    return counts


def _csv(path: Path) -> Rows | None:
    return CsvRows(path) if is_file(path) else None


class CsvRaw:
    """One type of node and edge in `raw/*.csv.gz`, one graph or many."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.raw = folder / "raw"
        self.count_file = "num-node-list.csv.gz"
        self.num_nodes = {NODE: _counts(self.raw / "num-node-list.csv.gz")}
        self.num_edges = {EDGE: _counts(self.raw / "num-edge-list.csv.gz")}
        nodes, edges = len(self.num_nodes[NODE]), len(self.num_edges[EDGE])
        if nodes != edges:
            raise DataError(
                f"counts edges of {edges:,} graphs, num-node-list.csv.gz nodes of {nodes:,}",
                path=self.raw / "num-edge-list.csv.gz",
            )

    def node_rows(self, kind: str, what: str) -> Rows | None:
        """See Raw."""
        if what == "node_species":  # ogbn-proteins calls it so
            return _csv(self.raw / "node_species.csv.gz") or _csv(self.raw / "species.csv.gz")
        return _csv(self.raw / {"feat": "node-feat.csv.gz", "label": "node-label.csv.gz"}.get(what, f"{what}.csv.gz"))

    def edge_rows(self, triplet: Triplet, what: str) -> Rows | None:
        """See Raw."""
        return _csv(self.raw / {"edge": "edge.csv.gz", "feat": "edge-feat.csv.gz"}.get(what, f"{what}.csv.gz"))

    def graph_labels(self) -> Rows | None:
        """See Raw."""
        return _csv(self.raw / "graph-label.csv.gz")

    def mapping_names(self, kind: str) -> Sequence[str]:
        """See Raw."""
        return ("nodeidx2*.csv.gz",)


class HeteroCsvRaw:
    """Several types of nodes and edges, as ogbn-mag has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.raw = folder / "raw"
        self.count_file = "num-node-dict.csv.gz"
        header, *rows = read_words(self.raw / self.count_file)
        if len(rows) != 1:
            raise DataError(
                f"has counts of {len(rows)} graphs; a data set with types has one graph",
                path=self.raw / self.count_file,
            )
        for column, kind in enumerate(header):
            _check_name(kind, "node type", path=self.raw / self.count_file, column=column)
        self.num_nodes = {kind: _whole(rows[0], i, self.raw / self.count_file) for i, kind in enumerate(header)}
        self.num_edges: dict[Triplet, Array] = {}
        for row, line in enumerate(read_words(self.raw / "triplet-type-list.csv.gz")):
            self._add_triplet(row, line)

    def _add_triplet(self, row: int, line: list[str]) -> None:
        path = self.raw / "triplet-type-list.csv.gz"
        if len(line) != 3:
            raise DataError(f"has {len(line)} columns; source, relation and target are needed", path=path, row=row)
        for column in (0, 2):
            if line[column] not in self.num_nodes:
                known = ", ".join(sorted(self.num_nodes))
                raise DataError(
                    f"unknown node type {line[column]!r}; known: {known}", path=path, row=row, column=column
                )
        triplet = (line[0], line[1], line[2])
        _check_name("___".join(triplet), "edge type", path=path, row=row)
        folder = self._relation(triplet)
        missing = [name for name in ("edge.csv.gz", "num-edge-list.csv.gz") if not is_file(folder / name)]
        if missing:
            raise DataError(f"is incomplete: lacks {' and '.join(missing)}", path=folder)
        self.num_edges[triplet] = _counts(folder / "num-edge-list.csv.gz")

    def _relation(self, triplet: Triplet) -> Path:
        return self.raw / "relations" / "___".join(triplet)

    def node_rows(self, kind: str, what: str) -> Rows | None:
        """See Raw."""
        if what == "label":
            return _csv(self.raw / "node-label" / kind / "node-label.csv.gz")
        return _csv(self.raw / "node-feat" / kind / ("node-feat.csv.gz" if what == "feat" else f"{what}.csv.gz"))

    def edge_rows(self, triplet: Triplet, what: str) -> Rows | None:
        """See Raw."""
        names = {"edge": "edge.csv.gz", "feat": "edge-feat.csv.gz"}
        return _csv(self._relation(triplet) / names.get(what, f"{what}.csv.gz"))

    def graph_labels(self) -> Rows | None:
        """See Raw."""
        return None

    def mapping_names(self, kind: str) -> Sequence[str]:
        """See Raw."""
        return (f"{kind}_entidx2*.csv.gz",)


class BinaryRaw:
    """One type of node and edge in `raw/data.npz`, as ogbn-papers100M has it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "raw" / "data.npz"
        self.count_file = "num_nodes_list"
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
        return _checked_counts(checked_cast(counts[:, None], np.int64, file.name, 0)[:, 0], file.name)

    def _member(self, name: str) -> Rows | None:
        return NpyRows(self.file, name, transposed=name == "edge_index") if name in self.members else None

    def node_rows(self, kind: str, what: str) -> Rows | None:
        """See Raw."""
        if what == "label":
            return self._label("node")
        return self._member("node_feat" if what == "feat" else what)

    def edge_rows(self, triplet: Triplet, what: str) -> Rows | None:
        """See Raw."""
        return self._member({"edge": "edge_index", "feat": "edge_feat"}.get(what, what))

    def graph_labels(self) -> Rows | None:
        """See Raw."""
        return self._label("graph")

    def _label(self, kind: str) -> Rows | None:
        path = self.file.with_name(f"{kind}-label.npz")
        return NpyRows(path, f"{kind}_label") if is_file(path) else None

    def mapping_names(self, kind: str) -> Sequence[str]:
        """See Raw."""
        return ("nodeidx2*.csv.gz",)


def _check_name(name: str, what: str, **where: Any) -> None:
    """Refuse a type that names no folder here: OGB's layout has a folder of that name."""
    if not is_file_name(name):
        raise DataError(f"the {what} {name!r} is no name of a folder; rename it, and its folders under raw/", **where)


def _whole(cells: list[str], column: int, path: Path) -> Array:
    try:
        count = int(float(cells[column]))
    except (IndexError, ValueError, OverflowError):
        raise DataError("needs one count a node type", path=path, row=0, column=column) from None
    if not 0 <= count <= MAX_COUNT:
        raise DataError(
            f"counts {cells[column]} nodes; 0 to {MAX_COUNT:,} are possible", path=path, row=0, column=column
        )
    return np.array([count], np.int64)


def labelled_types(path: Path) -> list[str]:
    """Return the node types that `nodetype-has-label.csv.gz` (or has-split) marks as true."""
    header, *rows = read_words(path)
    if len(rows) != 1 or len(rows[0]) != len(header):
        raise DataError("needs a header of node types and one row of True and False", path=path)
    return [kind for kind, cell in zip(header, rows[0], strict=True) if cell.strip().lower() in ("true", "1")]
