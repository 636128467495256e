"""Controls of rows with labels: the best constant, and models of the rows' own features; of several tasks too."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from tasks.arrays import Array, offsets
from tasks.controls import linear
from tasks.controls.entities import EntityRows
from tasks.controls.features import ControlledGraph, OwnFeatures, labelled, training_sample
from tasks.controls.moments import held_rows, moment_controls, past_controls
from tasks.controls.suite import Controls, FittedControl, Measure, Measured
from tasks.evaluators import metrics
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import of_head
from tasks.sampling.relational.batches import share_edges
from tasks.sampling.rows.labels import label_scale
from tasks.storage.controls import CONSTANT_CONTROLS, CONSTANT_OF_EACH, FEATURES_CONTROL, TEXTS_CONTROL
from tasks.storage.graph_facts import reads_tables
from tasks.storage.graph_store import GraphStore
from tasks.storage.heads import head_manifest, head_views
from tasks.storage.manifests import FeatureColumn, GraphManifest


def row_control(
    graph: ControlledGraph, num_scores: int, labels: Array, columns: tuple[FeatureColumn, ...]
) -> linear.LinearControl:
    """Fit a linear model of these columns to a sample of the training split; see `LabelControls`."""
    store, manifest, ids = graph.store, graph.store.manifest, graph.ids
    sample = training_sample(labelled(np.asarray(store["train_idx"], np.int64), labels), columns, num_scores)
    scratch = Path(tempfile.mkdtemp(dir=graph.scratch))
    label = np.asarray(labels[sample])
    if "graphs" in graph.dataset:
        numbers_of = offsets(graph.dataset.column("graphs", "num_nodes"))
        features = OwnFeatures(
            *graph.read(manifest.target_type, columns, np.arange(numbers_of[-1]), scratch), numbers_of
        )
        return linear.LinearControl.fit(store, features, sample, label, num_scores, lambda graphs: graphs)
    rows = np.unique(ids.rows(held_rows(store)))
    features = OwnFeatures(*graph.read(manifest.target_type, columns, rows, scratch))
    return linear.LinearControl.fit(
        store, features, sample, label, num_scores, lambda nodes: np.searchsorted(rows, ids.rows(nodes))
    )


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
        self._fitted = self.fitted(graph, num_scores, labels)

    def fitted(self, graph: ControlledGraph, num_scores: int, labels: Array) -> dict[str, FittedControl]:
        """Return what reads features, fitted, by name."""
        if reads_tables(graph.store.manifest):
            return {**past_controls(graph), **moment_controls(graph, num_scores)}
        columns = graph.columns(graph.store.manifest.target_type)
        texts = tuple(one for one in columns if one.kind == "text")
        if not columns:
            self.notes.append("the rows have no features of their own: there is no linear control")
            return {}
        fitted: dict[str, FittedControl] = {FEATURES_CONTROL: row_control(graph, num_scores, labels, columns)}
        if texts and texts != columns:
            fitted[TEXTS_CONTROL] = row_control(graph, num_scores, labels, texts)
        return fitted

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
    """Return by metric the best scores that are the same for every row, float32 (C,); `_ANY_METRIC`: of all others."""
    label = np.asarray(labels[rows])
    if manifest.label_type.is_number:
        labelled = [column[~np.isnan(column)] for column in label.T]
        medians = [np.median(values) if len(values) else 0.0 for values in labelled]
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


class SeveralControls(Controls):
    """The controls of a graph of several tasks."""

    def __init__(self, graph: ControlledGraph) -> None:
        """Fit them."""
        super().__init__()
        store = graph.store
        if reads_tables(store.manifest):
            graph = replace(graph, entities=EntityRows(store, held_rows(store), graph.scratch))
        self._views = head_views(store.manifest)
        self._parts: list[LabelControls] = []
        for view in self._views:
            own = GraphStore(store.folder, head_manifest(store.manifest, view.head))
            own.replace("label", view.label_of(np.asarray(store["label"])))
            share_edges(store, own)
            of_task = replace(graph, store=own, labels=view.labels)
            self._parts.append(LabelControls(of_task, view.num_scores, own["label"]))
        self.notes = [note for part in self._parts for note in part.notes]

    def measured(self, split: str, prediction: Prediction, measure: Measure) -> Measured:
        """Yield them; a task that has no such control has its best constant there."""
        by_name: dict[str, dict[int, Prediction]] = {}
        constants: list[Prediction] = []
        for number, (view, part) in enumerate(zip(self._views, self._parts, strict=True)):
            for name, control in part.predictions(split, of_head(prediction, view)):
                if name in CONSTANT_CONTROLS:
                    constants.append(control)
                else:
                    by_name.setdefault(name, {})[number] = control
        values = measure(self._joined(prediction, {}, constants))
        for number, (view, part) in enumerate(zip(self._views, self._parts, strict=True)):
            label = constants[number].label
            assert label is not None
            for name, best in part.best_constants(label):
                metric = f"{view.head.name}.{name}"
                if metric in values:
                    values[metric] = measure(self._joined(prediction, {number: best}, constants))[metric]
        yield CONSTANT_OF_EACH, values
        for name, parts in by_name.items():
            yield name, measure(self._joined(prediction, parts, constants))

    def _joined(self, prediction: Prediction, parts: dict[int, Prediction], constants: list[Prediction]) -> Prediction:
        columns = [parts.get(number, constant).scores for number, constant in enumerate(constants)]
        return replace(prediction, scores=np.concatenate([one for one in columns if one is not None], axis=1))
