"""Edges that have labels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tasks.arrays import Array
from tasks.kinds.base import Columns, Kind, TaskRows
from tasks.kinds.judged import splits_of
from tasks.kinds.labelled import MAX_UNSPLIT_NUMBERS, LabelledKind
from tasks.kinds.link import end_hashes
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import SPLITS

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.controls.features import ControlledGraph
    from tasks.controls.suite import Controls
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor


class EdgeKind(LabelledKind):
    """Rows are the edges of one table."""

    asked_by = explained_by = "edges"
    words = "edges"
    keeps_layers = False

    def rest(self, opened: Opened, note: Callable[[str], None]) -> TaskRows | None:
        """Return the edges that are in no split, ascending."""
        label = opened.store["edge_label"]
        edges = np.flatnonzero(splits_of(opened.store, np.arange(len(label)), len(label)) == len(SPLITS))
        if len(edges) * opened.model.facts.out_dim > MAX_UNSPLIT_NUMBERS:
            note(f"{len(edges):,} edges of no split are left out of the predictions: too many")
            return None
        return TaskRows(edges, None, np.asarray(label[edges])) if len(edges) else None

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

    def grouped_by(self, opened: Opened, items: Array, names: Collection[str]) -> Columns:
        """Return the in-degree of the less joined end as `degree`, and of each end."""
        degree = np.diff(opened.store["csc_indptr"])[np.asarray(opened.store["edge_ends"][items])]
        columns = {"degree": degree.min(1), "source_degree": degree[:, 0], "target_degree": degree[:, 1]}
        return {name: pa.array(values) for name, values in columns.items()}

    def row_hashes(
        self, store: GraphStore, dataset: DatasetStore, split: str, *, directed: bool, reverse: bool = False
    ) -> Array:
        """Return hashes of the edges' ends."""
        ends = np.asarray(store["edge_ends"][np.asarray(store[f"{split}_idx"])], np.int64)
        return end_hashes(store, dataset, ends, directed=directed, reverse=reverse)


KIND = EdgeKind()
