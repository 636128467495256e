"""Graphs of which each has labels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from tasks.arrays import Array
from tasks.kinds.base import Columns, TaskRows, finite
from tasks.kinds.judged import split_column, splits_of
from tasks.kinds.labelled import LabelledKind
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap
from tasks.storage.manifests import DatasetManifest

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor


class GraphKind(LabelledKind):
    """Rows are whole graphs."""

    asked_by = "graphs"
    explained_by = ""
    vectors_of = "graphs"

    def raw_scores(self, predictor: Predictor, model: GraphModel, items: Array) -> Array:
        """Return the scores of graphs."""
        return predictor.graph_scores(model, items)

    def ids(self, opened: Opened, items: Array) -> Columns:
        """Return `graph_id` and `row`."""
        return opened.ids.graph_columns(items)

    def outputs(self, opened: Opened, items: Array) -> Iterator[tuple[slice, Array]]:
        """Yield scores of graphs, and their place."""
        return opened.predictor.graph_outputs(opened.model, items)

    def vectors(self, opened: Opened, items: Array, *, typed: bool = False) -> Iterator[tuple[Columns, Array]]:
        """Yield the vectors of graphs."""
        for part, values in opened.predictor.pooled(opened.model, items):
            yield self.ids(opened, items[part]), finite(values)

    def points(self, opened: Opened) -> Array:
        """Return all graphs."""
        return np.arange(opened.store.manifest.num_graphs)

    def point_columns(self, opened: Opened, items: Array) -> Columns:
        """Return ids and split."""
        columns = self.ids(opened, items)
        count = opened.store.manifest.num_graphs
        split = split_column(splits_of(opened.store, items, count), slice(None), len(items))
        return {"id": columns.pop("graph_id"), **columns, "split": split}

    def named_rows(self, rows: TaskRows, rename: Callable[[Array], Array]) -> TaskRows:
        """Return the rows: graphs are numbered alike in all that is made of a data set."""
        return rows

    def id_tables(self, manifest: DatasetManifest) -> list[str]:
        """Return the one of graphs."""
        return ["ids/graphs"]

    def row_hashes(
        self, store: GraphStore, dataset: DatasetStore, split: str, *, directed: bool, reverse: bool = False
    ) -> Array:
        """Return hashes of the graphs' ids."""
        from tasks.ingest.ids.id_index import hash_ids

        return hash_ids(IdMap(store, dataset).lookup_graphs(np.asarray(store[f"{split}_idx"], np.int64)))


KIND = GraphKind()
