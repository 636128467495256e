"""Controls of rows with labels: the best constant, and models of the rows' own features."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tasks.arrays import Array
from tasks.controls.features import ControlledGraph
from tasks.controls.moments import moment_controls
from tasks.controls.past import past_controls
from tasks.controls.row_features import RowControl
from tasks.controls.suite import Controls, FittedControl, Measure
from tasks.evaluators import metrics
from tasks.evaluators.prediction import Prediction
from tasks.sampling.rows.labels import label_scale
from tasks.storage.controls import CONSTANT_CONTROLS, FEATURES_CONTROL
from tasks.storage.graph_facts import reads_tables
from tasks.storage.manifests import GraphManifest

_ANY_METRIC = ""
"""All metrics that have no best constant of their own."""


class LabelControls(Controls):
    """Those of nodes or graphs with labels."""

    def __init__(self, graph: ControlledGraph, num_scores: int, labels: Array) -> None:
        """Fit them; `num_scores`: columns of the model's scores; `labels` (N,) or (N, T) of all nodes or graphs."""
        super().__init__()
        manifest, rows = graph.store.manifest, np.asarray(graph.store["train_idx"])
        self._num_scores = num_scores
        self._constants = _constant_scores(manifest, labels, rows, num_scores)
        self._name = "mean" if manifest.label_type.is_number else "majority"
        self._fitted: dict[str, FittedControl] = {}
        if reads_tables(manifest):
            self._fitted = {**past_controls(graph), **moment_controls(graph, num_scores)}
            return
        own = RowControl.fit(graph, num_scores, labels)
        if own is None:
            self.notes.append("the rows have no features of their own: there is no linear control")
        else:
            self._fitted[FEATURES_CONTROL] = own

    def predictions(self, split: str, prediction: Prediction) -> Iterator[tuple[str, Prediction]]:
        """Yield the constant, then what reads features."""
        assert prediction.label is not None
        yield self._name, self._constant_prediction(_ANY_METRIC, prediction.label)
        for name, control in self._fitted.items():
            yield name, control.predict(split, prediction)

    def best(self, name: str, control: Prediction, values: dict[str, float], measure: Measure) -> dict[str, float]:
        """Take each metric of the constant that is best by it."""
        assert control.label is not None
        if name in CONSTANT_CONTROLS:
            for metric, constant in self.best_constants(control.label):
                if metric in values:
                    values[metric] = measure(constant)[metric]
        return values

    def best_constants(self, label: Array) -> Iterator[tuple[str, Prediction]]:
        """Yield the metrics that another constant than the usual one is best by, and that constant for each row."""
        for metric in self._constants:
            if metric != _ANY_METRIC:
                yield metric, self._constant_prediction(metric, label)

    def state(self, name: str, metric: str) -> tuple[dict[str, Array], list[str]]:
        """Return a constant's scores, float32 (C,), or what was fitted."""
        if name in CONSTANT_CONTROLS:
            return {"scores": self._constants.get(metric, self._constants[_ANY_METRIC])}, []
        return self._fitted[name].state()

    def _constant_prediction(self, metric: str, label: Array) -> Prediction:
        scores = np.broadcast_to(self._constants[metric], (len(label), self._num_scores))
        return Prediction(scores=scores, label=label)


def _constant_scores(manifest: GraphManifest, labels: Array, rows: Array, num_scores: int) -> dict[str, Array]:
    """Return by metric the best scores that are the same for every row, float32 (C,); `_ANY_METRIC`: of all others.

    The absolute error is least at the median. Where positives are few, their F1 is 0 unless all are called so.
    """
    label = np.asarray(labels[rows])
    if manifest.label_type.is_number:
        known = [column[~np.isnan(column)] for column in label.T]
        medians = [np.median(values) if len(values) else 0.0 for values in known]
        return {_ANY_METRIC: label_scale(labels, rows)[0].astype(np.float32), "mae": np.array(medians, np.float32)}
    if manifest.label_type.one_of_many:
        counts = np.bincount(label[label >= 0].astype(np.int64).ravel(), minlength=num_scores)
        return {_ANY_METRIC: np.log((counts + 1) / (counts.sum() + num_scores)).astype(np.float32)}
    columns = label.reshape(len(label), -1)
    logit = np.log(((columns == 1).sum(0) + 1) / ((columns == 0).sum(0) + 1)).astype(np.float32)
    constants = {_ANY_METRIC: logit}
    if label.ndim == 2:  # else it is of two classes, whose F1 is best where all are of the larger one
        for average in ("macro", "micro"):
            most, every = (
                metrics.f1_of_columns(columns, np.broadcast_to(guess, columns.shape), average)
                for guess in (logit > 0, np.ones(len(logit), np.bool_))
            )
            if every > most:
                constants[f"f1_{average}"] = np.ones(len(logit), np.float32)
    return constants
