"""A linear model that scores nodes by their own features, or graphs by the means of their nodes'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.controls import linear
from tasks.controls.features import (
    ControlledGraph,
    OwnFeatures,
    labelled,
    own_columns,
    read_rows,
    training_sample,
)
from tasks.evaluators.metrics import Array
from tasks.evaluators.prediction import Prediction


@dataclass(frozen=True)
class RowControl:
    """Fitted to a sample of the training split."""

    graph: ControlledGraph
    features: OwnFeatures
    rows: Array | None
    """Nodes: the rows of the table that `features` has, ascending; None: it has all items of the graph."""
    model: linear.LinearModel

    @classmethod
    def fit(cls, graph: ControlledGraph, num_scores: int, labels: Array) -> RowControl | None:
        """Fit it; None where nodes have no features; for the arguments see `LabelControls`."""
        store, manifest, ids = graph.store, graph.store.manifest, graph.ids
        columns = own_columns(graph.dataset, manifest.target_type)
        if not columns:
            return None
        sample = training_sample(labelled(np.asarray(store["train_idx"], np.int64), labels), columns, num_scores)
        table, rows, offsets = f"nodes/{manifest.target_type}", None, None
        if "graphs" in graph.dataset:
            sizes = graph.dataset.column("graphs", "num_nodes")
            offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
            wanted = np.arange(offsets[-1])
        else:
            held = [np.asarray(store[f"{split}_idx"]) for split in manifest.splits if f"{split}_idx" in store]
            wanted = rows = np.unique(ids.rows(np.concatenate(held)))
        features = OwnFeatures(*read_rows(graph.dataset, table, columns, wanted, graph.scratch), offsets)
        places = sample if rows is None else np.searchsorted(rows, ids.rows(sample))
        features.fit(places)
        x = np.concatenate([part for _, part in features.parts(places)])
        model = linear.fit(x, np.asarray(labels[sample]), manifest.label_type, num_scores)
        return cls(graph, features, rows, model)

    def state(self) -> tuple[dict[str, Array], list[str]]:
        """Return what standardizes features, and the model's weights."""
        return self.features.state() | {"weight": self.model.weight, "bias": self.model.bias}, []

    def predict(self, split: str, prediction: Prediction) -> Prediction:
        """Score a split's rows."""
        items = np.asarray(self.graph.store[f"{split}_idx"], np.int64)
        places = items if self.rows is None else np.searchsorted(self.rows, self.graph.ids.rows(items))
        scores = np.empty((len(items), len(self.model.bias)), np.float32)
        for part, x in self.features.parts(places):
            scores[part] = self.model(x)
        return Prediction(scores=scores, label=prediction.label)
