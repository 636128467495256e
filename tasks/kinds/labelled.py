"""Kinds whose rows have labels: nodes, edges, or graphs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from configs.label_types import LabelType
from configs.registry import EVALUATORS
from tasks.arrays import Array
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import make_evaluator
from tasks.kinds.base import Columns, Kind, Names, TaskRows, Warn, cut, finite
from tasks.kinds.judged import Deciding, as_probabilities, split_column, splits_of
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import SPLITS, GraphManifest

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.controls.features import ControlledGraph
    from tasks.controls.suite import Controls
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor

_MAX_UNSPLIT_NUMBERS = 1 << 28
"""Rows of no split are predicted too while what is computed of them is at most so many numbers (1 GiB of float32)."""
SECONDARY: dict[str, tuple[dict[str, Any], ...]] = {
    "multiclass": ({"name": "accuracy"}, {"name": "f1", "average": "macro"}),
    "binary": ({"name": "rocauc"}, {"name": "average_precision"}, {"name": "accuracy"}),
    "multilabel": ({"name": "rocauc"}, {"name": "average_precision"}, {"name": "f1", "average": "micro"}),
    "regression": ({"name": "rmse"}, {"name": "mae"}, {"name": "r2"}),
}
"""Evaluators that tell something of a type of label beside the one that judges, as recipes name them."""


class LabelledKind(Kind):
    """Rows with labels."""

    decides = True

    def rows(self, predictor: Predictor, split: str) -> TaskRows:
        """Return a split's rows."""
        index = np.asarray(predictor.split_array(f"{split}_idx"), np.int64)
        return TaskRows(index, split, np.asarray(predictor.store[predictor.store.manifest.split_rows.labels][index]))

    def score(self, predictor: Predictor, model: GraphModel, rows: TaskRows, metric: str = "") -> Prediction:
        """Score distinct rows."""
        return Prediction(scores=self.raw_scores(predictor, model, rows.items), label=rows.label)

    def score_all(
        self, predictor: Predictor, model: GraphModel, parts: Sequence[TaskRows], metric: str = ""
    ) -> Iterator[Prediction]:
        """Score the rows of all parts in one pass through the layers."""
        everything = np.unique(np.concatenate([rows.items for rows in parts]))
        scores = self.raw_scores(predictor, model, everything)
        for rows in parts:
            # Where one part is all there is, its scores are not copied.
            is_all = np.array_equal(rows.items, everything)
            own = scores if is_all else scores[np.searchsorted(everything, rows.items)]
            yield Prediction(scores=own, label=rows.label)

    @abstractmethod
    def raw_scores(self, predictor: Predictor, model: GraphModel, items: Array) -> Array:
        """Return the scores of distinct rows, float32 (n, C)."""

    def ids(self, opened: Opened, items: Array) -> Columns:
        """Return columns of what names rows in a file."""
        return opened.ids.columns(items)

    def judged(self, opened: Opened, label: Array, scores: Array, deciding: Deciding) -> Columns:
        """Return the columns `label`, `prediction` and `score` of rows."""
        return deciding.judged(opened.store.manifest.label_type, label, scores)

    def columns(self, opened: Opened, rows: TaskRows, prediction: Prediction, deciding: Deciding) -> Iterator[Columns]:
        """Yield ids, split, labels and what is predicted."""
        assert prediction.scores is not None
        assert rows.label is not None
        for part in cut(len(rows.items)):
            yield self._columns(opened, rows, part, rows.label[part], prediction.scores[part], deciding)

    def _columns(
        self, opened: Opened, rows: TaskRows, part: slice, label: Array, scores: Array, deciding: Deciding
    ) -> Columns:
        items = rows.items[part]
        columns = self.ids(opened, items) | {"split": split_column(rows.split, part, len(items))}
        return columns | self.judged(opened, label, deciding.ordered(scores), deciding)

    def decided(self, manifest: GraphManifest, prediction: Prediction) -> Iterator[tuple[str, LabelType, Prediction]]:
        """Yield the one task."""
        yield "", manifest.label_type, prediction

    def asked_rows(self, opened: Opened, items: Array, *, names_splits: bool) -> TaskRows:
        """Return nodes or graphs."""
        count = len(opened.store[opened.store.manifest.split_rows.labels])
        return TaskRows(items, splits_of(opened.store, items, count) if names_splits else None)

    def outputs(self, opened: Opened, items: Array) -> Iterator[tuple[slice, Array]]:
        """Yield scores of rows, of which some may repeat, and their place."""
        return opened.predictor.node_outputs(opened.model, items)

    def answers(self, opened: Opened, rows: TaskRows, deciding: Deciding) -> Iterator[Columns]:
        """Score rows, some at a time."""
        for part, scores in self.outputs(opened, rows.items):
            label = np.asarray(opened.store[opened.store.manifest.split_rows.labels][rows.items[part]])
            yield self._columns(opened, rows, part, label, finite(scores), deciding)

    def probabilities(self, opened: Opened, rows: TaskRows, deciding: Deciding) -> Iterator[tuple[Columns, Array]]:
        """Score rows; a regression's are as they are."""
        for part, scores in self.outputs(opened, rows.items):
            ordered = deciding.ordered(finite(scores))
            yield self.ids(opened, rows.items[part]), self.as_probabilities(opened.store.manifest, ordered)

    def as_probabilities(self, manifest: GraphManifest, scores: Array) -> Array:
        """Return scores (n, C) as probabilities or numbers."""
        return as_probabilities(manifest.label_type, scores)

    def controls(self, graph: ControlledGraph, num_scores: int) -> Controls:
        """Fit the best constant, and what sees the rows' own features."""
        from tasks.controls.labels import LabelControls

        return LabelControls(graph, num_scores, graph.store[graph.store.manifest.split_rows.labels])

    def secondary(self, manifest: GraphManifest) -> list[Evaluator]:
        """Return what tells something of the type of label."""
        configs = [EVALUATORS.config(dict(one)) for one in SECONDARY[manifest.label_type.name]]
        return [make_evaluator(config, manifest) for config in configs]

    def measurable(
        self, evaluator: Evaluator, graph: GraphStore, names: Names, splits: Sequence[str], warn: Warn
    ) -> None:
        """Look at the labels of each split."""
        from tasks.kinds.measurable import check_labels_of, split_labels

        labels = split_labels(graph, graph[graph.manifest.split_rows.labels])
        check_labels_of(evaluator, graph.manifest, labels, splits, warn, names)

    def diagnose(self, opened: Opened, split: str, prediction: Prediction) -> dict[str, Any]:
        """Return what tells of decisions, or of errors."""
        from tasks.kinds.diagnosis.classes import diagnose

        [(_, kind, judging), *_] = self.decided(opened.store.manifest, prediction)
        return diagnose(judging, kind, opened.names)

    def said_of_points(self, opened: Opened, items: Array) -> tuple[LabelType, Columns] | None:
        """Return labels and predictions of points; None: they have several columns."""
        scores = self.raw_scores(opened.predictor, opened.model, items)
        label = np.asarray(opened.store[opened.store.manifest.split_rows.labels])[items]
        if scores.shape[1] > 1 < np.ndim(label) < 3:
            return None
        kind = opened.store.manifest.label_type
        return kind, self.judged(opened, label, scores, Deciding(opened.names))

    def labels(self, store: GraphStore) -> Array | None:
        """Return them; None: the data has none."""
        return store.get(store.manifest.split_rows.labels)


def unsplit_rows(opened: Opened, words: str, items: Array, width: int, note: Callable[[str], None]) -> TaskRows | None:
    """Return those of some rows, ascending, that are in no split; None: there are none, or too many.

    `width`: numbers that are computed of each.
    """
    labels = opened.store[opened.store.manifest.split_rows.labels]
    rows = items[splits_of(opened.store, items, len(labels)) == len(SPLITS)]
    if len(rows) * width > _MAX_UNSPLIT_NUMBERS:
        note(f"{len(rows):,} {words} of no split are left out of the predictions: too many")
        return None
    return TaskRows(rows, None, np.asarray(labels[rows])) if len(rows) else None
