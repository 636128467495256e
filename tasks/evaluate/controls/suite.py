"""All controls of a graph, fitted, and what they say of a split."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from tasks.evaluate.controls.features import ControlledGraph
from tasks.evaluate.controls.pairs import PairControl
from tasks.evaluate.controls.rows import RowControl
from tasks.evaluate.evaluators import Prediction
from tasks.evaluate.metrics import Array
from tasks.graph_store import GraphStore
from tasks.manifests import FEATURES_CONTROL


class LinearControl(Protocol):
    """A linear model on own features."""

    def predict(self, split: str, prediction: Prediction) -> Prediction | None:
        """Score the rows that `prediction`, the model's, is about; None where that takes too long."""
        ...


class Controls:
    """The controls of a graph, fitted to its training split."""

    def __init__(self, graph: ControlledGraph, num_scores: int) -> None:
        """Fit them; `num_scores`: columns of the model's scores."""
        self.notes: list[str] = []
        """What cannot be had, in words."""
        self._num_scores = num_scores
        self._task_type = graph.store.manifest.task_type
        self._constant = _constant_scores(graph.store, num_scores)
        self._linear: LinearControl | None
        if graph.store.manifest.task == "link":
            self._linear = PairControl.fit(graph)
        else:
            self._linear = RowControl.fit(graph, num_scores)
        if self._linear is None:
            self.notes.append("the rows have no features of their own: there is no linear control")

    def predictions(self, split: str, prediction: Prediction) -> Iterator[tuple[str, Prediction]]:
        """Yield name and scores of each control on the rows that `prediction`, the model's, is about."""
        if self._constant is None:
            positive, negative = prediction.pairs()
            yield "chance", Prediction(positive=np.zeros_like(positive), negative=np.zeros_like(negative))
        else:
            assert prediction.label is not None
            scores = np.broadcast_to(self._constant, (len(prediction.label), self._num_scores))
            name = "mean" if self._task_type == "regression" else "majority"
            yield name, Prediction(scores=scores, label=prediction.label)
        if self._linear is None:
            return
        found = self._linear.predict(split, prediction)
        if found is None:
            self.notes.append(f"{split} has too many pairs for the linear control")
        else:
            yield FEATURES_CONTROL, found


def _constant_scores(store: GraphStore, num_scores: int) -> Array | None:
    """Return the scores that no row changes, float32 (C,); None for pairs."""
    manifest = store.manifest
    if manifest.task == "link":
        return None
    labels = store["label" if manifest.task == "node" else "graph_label"]
    rows = np.asarray(store["train_idx"])
    if manifest.task_type == "regression":
        from tasks.train.label_scale import label_scale

        return label_scale(labels, rows)[0].astype(np.float32)
    label = np.asarray(labels[rows])
    if manifest.task_type == "multiclass":
        counts = np.bincount(label[label >= 0].astype(np.int64).ravel(), minlength=num_scores)
        return np.log((counts + 1) / (counts.sum() + num_scores)).astype(np.float32)
    columns = label.reshape(len(label), -1)
    return np.log(((columns == 1).sum(0) + 1) / ((columns == 0).sum(0) + 1)).astype(np.float32)
