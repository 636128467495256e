"""Nodes that have labels."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tasks.arrays import Array
from tasks.evaluators.prediction import Prediction
from tasks.kinds.base import Columns, TaskRows
from tasks.kinds.labelled import LabelledKind, unsplit_rows
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap
from tasks.storage.manifests import DatasetManifest

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor


class NodeKind(LabelledKind):
    """Rows are nodes of one type."""

    keeps_layers = True

    def rest(self, opened: Opened, note: Callable[[str], None]) -> TaskRows | None:
        """Return nodes of the labelled type that are in no split, ascending."""
        widest = max(opened.model.facts.out_dim, opened.model.config.hidden_dim)
        return unsplit_rows(opened, "nodes", self.points(opened), widest, note)

    def raw_scores(self, predictor: Predictor, model: GraphModel, items: Array) -> Array:
        """Return the scores of distinct nodes."""
        return predictor.node_scores(model, items)

    def score_parts(self, predictor: Any, model: GraphModel, split: str) -> Prediction:
        """Score the nodes of a split, each by the rank that holds it."""
        return predictor.split_nodes(model, split)

    def grouped_by(
        self, store: GraphStore, dataset: DatasetStore, ids: IdMap, items: Array, names: Collection[str]
    ) -> Columns:
        """Return degrees, or all that maps know."""
        if set(names) <= {"degree"}:
            return {"degree": pa.array(np.diff(store["csc_indptr"])[items])}
        from tasks.kinds.points import point_columns

        return point_columns(store, dataset, ids, items, names)

    def points(self, opened: Opened) -> Array:
        """Return the nodes that may have labels."""
        return np.sort(opened.ids.nodes_of_type(opened.store.manifest.target_type))

    def id_tables(self, manifest: DatasetManifest) -> list[str]:
        """Return the one of the labelled type."""
        return [f"ids/{manifest.target_type}"]


KIND = NodeKind()
