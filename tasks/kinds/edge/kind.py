"""Edges that have labels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tasks.arrays import Array
from tasks.kinds.base import Columns, Kind, TaskRows
from tasks.kinds.labelled import LabelledKind, unsplit_rows
from tasks.kinds.link import FACTOR, end_hashes
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import ALWAYS, GraphStore
from tasks.storage.ids import IdMap
from tasks.storage.manifests import EDGE_CATEGORIES, EDGE_IDS, DatasetManifest

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.controls.features import ControlledGraph
    from tasks.controls.suite import Controls
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor

_IDS, _MOMENTS = "ids of edges", "ids of ends, and times"


class EdgeKind(LabelledKind):
    """Rows are the edges of one table."""

    asked_by = explained_by = "edges"
    words = "edges"
    keeps_layers = False

    def rest(self, opened: Opened, note: Callable[[str], None]) -> TaskRows | None:
        """Return the edges that are in no split, ascending."""
        edges = np.arange(len(opened.store["edge_label"]))
        return unsplit_rows(opened, "edges", edges, opened.model.facts.out_dim, note)

    def raw_scores(self, predictor: Predictor, model: GraphModel, items: Array) -> Array:
        """Return the scores of edges."""
        return predictor.edge_scores(model, items)

    def ids(self, opened: Opened, items: Array) -> Columns:
        """Return the edges' own ids, if they have some, their ends and rows."""
        return opened.ids.edge_columns(items)

    def outputs(self, opened: Opened, items: Array) -> Iterator[tuple[slice, Array]]:
        """Yield scores of edges, and their place."""
        return opened.predictor.edge_outputs(opened.model, items)

    said_of_points = Kind.said_of_points  # points are nodes, of which nothing is predicted
    points = Kind.points

    def named_rows(self, rows: TaskRows, rename: Callable[[Array], Array]) -> TaskRows:
        """Return the rows: edges have the numbers of their table whatever nodes are called."""
        return rows

    def controls(self, graph: ControlledGraph, num_scores: int) -> Controls:
        """Fit the best constant, and what sees edges and both ends without the graph."""
        from tasks.controls.edges import EdgeControls

        return EdgeControls(graph, num_scores)

    def grouped_by(
        self, store: GraphStore, dataset: DatasetStore, ids: IdMap, items: Array, names: Collection[str]
    ) -> Columns:
        """Return the in-degree of the less joined end as `degree`, and of each end; and the edges' own columns."""
        ends = np.diff(store["csc_indptr"])[np.asarray(store["edge_ends"][items])]
        degrees = {"degree": ends.min(1), "source_degree": ends[:, 0], "target_degree": ends[:, 1]}
        columns = {name: pa.array(values) for name, values in degrees.items()}
        if set(names) <= set(columns):
            return columns
        from tasks.kinds.points import renamed, table_columns, times_column

        kind, rows = dataset.manifest.labelled_edges, store.get("edge_rows")
        rows, table = np.asarray(items if rows is None else rows[items], np.int64), f"edges/{kind.name}"
        if "time" in dataset.table(table).columns:
            times = np.asarray(dataset.column(table, "time"))[rows]
            columns["time"] = times_column(times, store.manifest.time_unit, ALWAYS)
        own = dict(table_columns(dataset, table, EDGE_CATEGORIES, kind.features, pa.array(rows), names))
        return columns | renamed(own, columns)

    def row_hashes(
        self, store: GraphStore, dataset: DatasetStore, split: str, *, directed: bool, reverse: bool = False
    ) -> Array:
        """Return hashes of the edges' own ids, or of their ends and times, which several may share."""
        from tasks.ingest.ids.id_index import hash_ids

        edges, manifest = np.asarray(store[f"{split}_idx"]), dataset.manifest
        words, rows = self.hashed_by(manifest), store.get("edge_rows")
        if words == _IDS:
            return hash_ids(IdMap(store, dataset).edge_columns(edges)["edge_id"])
        ends = np.asarray(store["edge_ends"][edges], np.int64)
        hashes = end_hashes(store, dataset, ends, directed=directed, reverse=reverse)
        if words == _MOMENTS:
            times = dataset.column(f"edges/{manifest.labelled_edges.name}", "time")
            hashes = hashes * FACTOR ^ hash_ids(pa.array(times[edges if rows is None else rows[edges]]))
        return hashes

    def hashed_by(self, manifest: DatasetManifest) -> str:
        """Return what tells edges between the same ends apart, where something does."""
        kind = manifest.labelled_edges.name
        if f"{EDGE_IDS}/{kind}" in manifest.tables:
            return _IDS
        return _MOMENTS if "time" in manifest.tables[f"edges/{kind}"].columns else super().hashed_by(manifest)


KIND = EdgeKind()
