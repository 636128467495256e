"""A linear model that scores nodes by their own features, or graphs by the means of their nodes'."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tasks.controls import linear
from tasks.controls.features import (
    ControlledGraph,
    OwnFeatures,
    own_columns,
    prepared_columns,
    prepared_features,
    read_rows,
    training_sample,
)
from tasks.evaluators.metrics import Array
from tasks.evaluators.prediction import Prediction
from tasks.storage.graph_store import GraphStore


@dataclass(frozen=True)
class RowControl:
    """Fitted to a sample of the training split."""

    graph: ControlledGraph
    features: OwnFeatures
    rows: Array | None
    """Nodes: the rows of the table that `features` has, ascending; None: it has all items of the graph."""
    model: linear.Linear

    @classmethod
    def fit(cls, graph: ControlledGraph, num_scores: int) -> RowControl | None:
        """Fit it; None where nodes have no features. `num_scores`: columns of the model's scores."""
        store, manifest, ids = graph.store, graph.store.manifest, graph.ids
        columns = own_columns(graph.dataset, manifest.target_type)
        if not columns:
            return None
        labels = store["label" if manifest.task == "node" else "graph_label"]
        sample = training_sample(_labelled(store, labels), columns, num_scores)
        table, rows, offsets = f"nodes/{manifest.target_type}", None, None
        if manifest.task == "graph":
            sizes = graph.dataset.column("graphs", "num_nodes")
            offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
            wanted = np.arange(offsets[-1])
        else:
            held = [np.asarray(store[f"{split}_idx"]) for split in manifest.splits if f"{split}_idx" in store]
            wanted = rows = np.unique(ids.rows(np.concatenate(held)))
        features = OwnFeatures(*read_rows(graph.dataset, table, columns, wanted, graph.scratch), offsets)
        places = sample if rows is None else np.searchsorted(rows, ids.rows(sample))
        model = _fitted(features, places, np.asarray(labels[sample]), manifest.task_type, num_scores)
        return cls(graph, features, rows, model)

    @classmethod
    def fit_prepared(cls, graph: ControlledGraph, num_scores: int) -> RowControl:
        """Fit it to the nodes' features after preprocess."""
        store = graph.store
        sample = training_sample(_labelled(store, store["label"]), prepared_columns(store), num_scores)
        features = prepared_features(store)
        label = np.asarray(store["label"][sample])
        return cls(graph, features, None, _fitted(features, sample, label, store.manifest.task_type, num_scores))

    def predict(self, split: str, prediction: Prediction) -> Prediction:
        """Score a split's rows."""
        items = np.asarray(self.graph.store[f"{split}_idx"], np.int64)
        places = items if self.rows is None else np.searchsorted(self.rows, self.graph.ids.rows(items))
        scores = np.empty((len(items), len(self.model.bias)), np.float32)
        for part, x in self.features.parts(places):
            scores[part] = self.model(x)
        return Prediction(scores=scores, label=prediction.label)


def _labelled(store: GraphStore, labels: Array) -> Array:
    """Return the training split's items that have a label."""
    train = np.asarray(store["train_idx"], np.int64)
    label = np.asarray(labels[train])
    return train[~np.isnan(label).all(1) if label.ndim == 2 else label >= 0]


def _fitted(features: OwnFeatures, places: Array, label: Array, task_type: str, num_scores: int) -> linear.Linear:
    """Standardize features by some items, and fit a linear model to them."""
    features.fit(places)
    x = np.concatenate([part for _, part in features.parts(places)])
    return linear.fit(x, label, task_type, num_scores)
