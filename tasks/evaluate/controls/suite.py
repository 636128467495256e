"""All controls of a graph, fitted, and what they say of a split."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from configs.metric_names import hits_of
from models.vectors.base import VectorModel
from tasks.arrays import sample_rows
from tasks.evaluate.controls.association import AssociationControl
from tasks.evaluate.controls.edge_bank import EdgeBank
from tasks.evaluate.controls.features import ControlledGraph, has_vectors
from tasks.evaluate.controls.moments import MomentControl, fit_controls
from tasks.evaluate.controls.neighborhoods import NeighborhoodControl
from tasks.evaluate.controls.pairs import PairControl
from tasks.evaluate.controls.past import PastControl, past_controls
from tasks.evaluate.controls.recommendation import RecommendationControls
from tasks.evaluate.controls.rows import RowControl
from tasks.evaluate.controls.triples import FrequencyControl
from tasks.evaluate.controls.vectors import scores_by_vectors
from tasks.evaluators import metrics
from tasks.evaluators.metrics import Array
from tasks.evaluators.prediction import Prediction
from tasks.ranking.ranks import Ranks
from tasks.storage.controls import CONSTANT_CONTROLS, CONTROLS, FEATURES_CONTROL, PREPARED_CONTROL
from tasks.storage.graph_facts import reads_tables
from tasks.storage.graph_store import GraphStore
from tasks.train.label_scale import label_scale

_MOST_ASSOCIATED = 2000
"""Triples of a split whose ends are ranked by association."""
_ANY_METRIC = ""
"""All metrics that have no best constant of their own."""


class Controls:
    """The controls of a graph, fitted to its training split."""

    def __init__(self, graph: ControlledGraph, num_scores: int, vectors: VectorModel | None = None) -> None:
        """Fit them.

        Args:
            graph: what they are fitted to.
            num_scores: columns of the model's scores.
            vectors: the model, where it is a vector for each node.
        """
        self.notes: list[str] = []
        """What cannot be had, in words."""
        self._frequency: FrequencyControl | None = None
        self._association: AssociationControl | None = None
        self._recommendation: RecommendationControls | None = None
        self._graph = graph
        if graph.store.manifest.ranking is not None:
            self._recommendation = RecommendationControls(graph.store)
            self.notes = self._recommendation.notes
            return
        if graph.store.manifest.task == "triple":
            self._frequency = FrequencyControl(graph.predictor.triple_splits)
            return
        self._num_scores = num_scores
        self._task_type = graph.store.manifest.task_type
        self._constants = _constant_scores(graph.store, num_scores)
        is_link = graph.store.manifest.task == "link"
        self._vectors = vectors
        self._neighborhoods = NeighborhoodControl(graph.store) if is_link else None
        self._bank = EdgeBank(graph) if is_link and graph.store.manifest.negative_kinds else None
        self._linear: dict[str, PairControl | RowControl | MomentControl | PastControl] = {}
        if reads_tables(graph.store.manifest):
            self._linear = {**past_controls(graph), **fit_controls(graph, num_scores)}
            return
        own = PairControl.fit(graph) if is_link else RowControl.fit(graph, num_scores)
        if own is not None:
            self._linear[FEATURES_CONTROL] = own
        if graph.store.manifest.task != "graph" and has_vectors(graph.store):
            prepared = PairControl.fit_prepared(graph) if is_link else RowControl.fit_prepared(graph, num_scores)
            self._linear[PREPARED_CONTROL] = prepared
        if not self._linear:
            self.notes.append("the rows have no features of their own: there is no linear control")

    def measured(
        self, split: str, prediction: Prediction, measure: Callable[[Prediction], dict[str, float]]
    ) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield name and metrics of each control on the rows that `prediction`, the model's, is about.

        Of what no row changes each metric has the best that there is: see `_constant_scores` and `_chance`.
        """
        if self._recommendation is not None:
            for name, ranked in self._recommendation.ranked(split):
                yield name, measure(Prediction(ranked=ranked))
            return
        if self._frequency is not None:
            yield from self._of_triples(self._frequency, split, prediction.true_ranks(), measure)
            return
        for name, control in self.predictions(split, prediction):
            values = measure(control)
            if name in CONSTANT_CONTROLS and control.label is not None:
                for metric, constant in self.best_constants(control.label):
                    if metric in values:
                        values[metric] = measure(constant)[metric]
            elif name in CONSTANT_CONTROLS and control.negative is not None:
                values = {metric: _chance(metric, control, value) for metric, value in values.items()}
            yield name, values

    def best_constants(self, label: Array) -> Iterator[tuple[str, Prediction]]:
        """Yield the metrics that another constant than the usual one is best by, and that constant for each row."""
        for metric in self._constants:
            if metric != _ANY_METRIC:
                yield metric, self._constant_prediction(metric, label)

    def constant(self, metric: str) -> Array:
        """Return the scores that are the same for every row, by which that metric is best: float32 (C,)."""
        return self._constants.get(metric, self._constants[_ANY_METRIC])

    def fitted(self, name: str) -> PairControl | RowControl | MomentControl | PastControl | None:
        """Return a control that was fitted; None: there is nothing to fit."""
        return self._linear.get(name) if self._graph.store.manifest.ranking is None else None

    def predictions(self, split: str, prediction: Prediction) -> Iterator[tuple[str, Prediction]]:
        """Yield name and scores of each control on the rows that `prediction`, the model's, is about."""
        for name, found in self._predictions(split, prediction):
            yield name, replace(found, relations=prediction.relations, negative_kinds=prediction.negative_kinds)

    def _predictions(self, split: str, prediction: Prediction) -> Iterator[tuple[str, Prediction]]:
        if not self._constants:
            positive, negative = prediction.pairs()
            yield "chance", Prediction(positive=np.zeros_like(positive), negative=np.zeros_like(negative))
        else:
            assert prediction.label is not None
            yield (
                "mean" if self._task_type == "regression" else "majority",
                self._constant_prediction(_ANY_METRIC, prediction.label),
            )
        for name, control in self._linear.items():
            found = control.predict(split, prediction)
            if found is None:
                self.notes.append(f"{split} has too many pairs for the linear control ({CONTROLS[name].row})")
            else:
                yield name, found
        if self._neighborhoods is not None:
            yield from self._of_pairs(self._neighborhoods, split)

    def _of_triples(
        self,
        control: FrequencyControl,
        split: str,
        ranks: Ranks,
        measure: Callable[[Prediction], dict[str, float]],
    ) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield what a random order gives among as many candidates, and an order by frequency."""
        alike = Ranks(np.zeros_like(ranks.better), ranks.candidates, ranks.candidates)
        found = measure(Prediction(ranks=alike))
        harmonic = np.cumsum(1 / np.arange(1, ranks.candidates.max(initial=0) + 2))
        chance = {"mrr": float((harmonic[ranks.candidates] / (ranks.candidates + 1)).mean())}
        for metric in found:
            most = hits_of(metric)
            if most is not None:
                chance[metric] = float(np.minimum(1, most / (ranks.candidates + 1)).mean())
        yield "chance", {metric: chance.get(metric, value) for metric, value in found.items()}
        splits = self._graph.predictor.triple_splits
        triples = splits.triples(split)
        yield "frequency", measure(Prediction(ranks=control.ranks(triples)))
        if self._association is None:
            self._association = AssociationControl(splits)
        if len(triples) > _MOST_ASSOCIATED:
            triples = triples.taken(sample_rows(np.arange(len(triples)), _MOST_ASSOCIATED))
            self.notes.append(f"association was measured on {_MOST_ASSOCIATED:,} triples of {split}")
        yield "association", measure(Prediction(ranks=self._association.ranks(triples)))

    def _of_pairs(self, control: NeighborhoodControl, split: str) -> Iterator[tuple[str, Prediction]]:
        true, false = self._graph.predictor.link_pairs(split)
        pairs = np.concatenate([np.asarray(true), np.asarray(false).reshape(-1, 2)])
        scores = control.scores(pairs)
        if scores is None:
            self.notes.append(f"{split} has too many pairs to look at the neighbours of each")
        further = scores_by_vectors(self._vectors, pairs) if self._vectors is not None else {}
        further |= self._bank.scores(pairs, split) if self._bank is not None else {}
        for name, found in {**(scores or {}), **further}.items():
            yield name, Prediction(positive=found[: len(true)], negative=found[len(true) :].reshape(false.shape[:-1]))

    def _constant_prediction(self, metric: str, label: Array) -> Prediction:
        scores = np.broadcast_to(self._constants[metric], (len(label), self._num_scores))
        return Prediction(scores=scores, label=label)


def _chance(metric: str, pairs: Prediction, value: float) -> float:
    """Return the mean of a metric over random orders of each edge's candidates; else `value`, that of equal scores.

    Equal scores would all miss Hits@K, which counts a tie as a miss, and all have the middle rank.
    """
    assert pairs.negative is not None
    if pairs.relations is not None or pairs.negative_kinds:
        return float(np.mean([_chance(metric, own, value) for own in pairs.groups()]))
    candidates = 1 + pairs.negative.shape[-1]
    if metric == "mrr":
        return float(np.mean(1 / np.arange(1, candidates + 1)))
    most = hits_of(metric)
    return value if most is None else min(1.0, most / candidates)


def _constant_scores(store: GraphStore, num_scores: int) -> dict[str, Array]:
    """Return by metric the best scores that are the same for every row, float32 (C,); `_ANY_METRIC`: of all others.

    The absolute error is least at the median. Where positives are few, their F1 is 0 unless all are called so. Empty
    for pairs.
    """
    manifest = store.manifest
    if manifest.task == "link":
        return {}
    labels = store["label" if manifest.task == "node" else "graph_label"]
    rows = np.asarray(store["train_idx"])
    if manifest.task_type == "regression":
        label = np.asarray(labels[rows])
        known = [column[~np.isnan(column)] for column in label.T]
        medians = [np.median(values) if len(values) else 0.0 for values in known]
        return {_ANY_METRIC: label_scale(labels, rows)[0].astype(np.float32), "mae": np.array(medians, np.float32)}
    label = np.asarray(labels[rows])
    if manifest.task_type == "multiclass":
        counts = np.bincount(label[label >= 0].astype(np.int64).ravel(), minlength=num_scores)
        return {_ANY_METRIC: np.log((counts + 1) / (counts.sum() + num_scores)).astype(np.float32)}
    columns = label.reshape(len(label), -1)
    logit = np.log(((columns == 1).sum(0) + 1) / ((columns == 0).sum(0) + 1)).astype(np.float32)
    found = {_ANY_METRIC: logit}
    if label.ndim == 2:  # else it is of two classes, whose F1 is best where all are of the larger one
        for average in ("macro", "micro"):
            most, every = (
                metrics.f1_of_columns(columns, np.broadcast_to(guess, columns.shape), average)
                for guess in (logit > 0, np.ones(len(logit), np.bool_))
            )
            if every > most:
                found[f"f1_{average}"] = np.ones(len(logit), np.float32)
    return found
