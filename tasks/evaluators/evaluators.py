"""Evaluators: from a model's scores to the numbers that the field prints.

`make_evaluator(recipe.evaluate.evaluator, graph)` gives an object with `metric`, `higher_is_better` and a call
`evaluator(prediction) -> {metric: value, ...}` whose first key is the primary metric.

Scores are raw outputs of the model (logits, edge scores, values of a regression), never probabilities: a binary label
is predicted as 1 where its logit is above 0. Which reading applies is seen from the label:

| label | scores | what |
|---|---|---|
| int64 (n,), -1: none | (n, C) | class index; prediction: the highest score |
| int64 (n,), -1: none | (n, 1) | 0 or 1; prediction: logit > 0 |
| float (n, T), NaN: none | (n, T) | T binary labels, or T values of a regression |
| float (n, 1), NaN: none | (n, 2) | one binary label; its logit is scores[:, 1] - scores[:, 0] |

A model may know classes that the data has not (`Prediction.num_classes`): guessing one is wrong, and that is all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from configs.base import ComponentConfig
from configs.errors import DataError, RecipeError
from configs.metric_names import check_metric, hits_of
from configs.registry import EVALUATORS
from tasks.evaluators import metrics
from tasks.evaluators.metrics import Array, Floats
from tasks.storage.manifests import GraphManifest

_CLASSIFY = frozenset({"multiclass", "binary", "multilabel"})


@dataclass(frozen=True)
class Prediction:
    """What a model says about one split.

    Node and graph tasks: `scores` (n, C) float32 and `label` (n,) or (n, T).
    Link tasks: `positive` (n,) and `negative`, (m,) as one pool or (n, K) as K for each positive.
    """

    scores: Array | None = None
    label: Array | None = None
    positive: Array | None = None
    negative: Array | None = None
    num_classes: int | None = None
    """Classes of the data, where scores of others may stand behind theirs; None: all are the data's."""

    def pairs(self) -> tuple[Floats, Floats]:
        """Scores of positive and negative edges. Raises RecipeError if training diverged."""
        if self.positive is None or self.negative is None:
            raise DataError("this metric ranks edges: it needs scores of positive and of negative edges")
        if not len(self.positive) or not self.negative.size:
            raise DataError("the split has no positive or no negative edges; there is nothing to rank")
        return finite(self.positive), finite(self.negative)

    def classes(self) -> tuple[Array, Array]:
        """True and predicted class index of labelled rows, (n,) int64 each."""
        label, scores = self._labelled()
        if scores.shape[1] == 1:
            return label.reshape(len(label)).astype(np.int64), (scores[:, 0] > 0).astype(np.int64)
        return label.reshape(len(label)).astype(np.int64), scores.argmax(axis=1)

    def columns(self) -> tuple[Array, Floats]:
        """Labels (n, T) float64 with NaN for missing, and scores (n, T); classes become one column each (one vs rest).

        A single-label problem of two classes becomes one column. Classes that are none of the data's are left out.
        """
        label, scores = self._labelled()
        if label.ndim == 1 and self.num_classes is not None:
            scores = scores[:, : self.num_classes]
        if label.ndim == 1 and scores.shape[1] > 2:
            one_hot = (label[:, None] == np.arange(scores.shape[1])).astype(np.float64)
            return one_hot, _log_softmax(scores)
        if scores.shape[1] == 2 and (label.ndim == 1 or label.shape[1] == 1):
            scores = scores[:, 1:] - scores[:, :1]
        label = label.reshape(len(label), -1).astype(np.float64)
        if label.shape != scores.shape:
            raise DataError(f"labels of shape {label.shape} do not fit scores of shape {scores.shape}")
        return label, scores

    @property
    def single_label(self) -> bool:
        """Whether a row has one class out of many (against several independent columns)."""
        return self.label is not None and self.label.ndim == 1

    def _labelled(self) -> tuple[Array, Floats]:
        if self.scores is None or self.label is None:
            raise DataError("this metric compares labels: it needs scores and labels of nodes or graphs")
        label, scores = self.label, finite(self.scores)
        if scores.ndim == 1:
            scores = scores[:, None]
        if len(label) != len(scores):
            raise DataError(f"{len(label)} labels do not fit {len(scores)} rows of scores")
        if label.ndim == 1 and np.issubdtype(label.dtype, np.floating) and scores.shape[1] == 1:
            label = label[:, None]
        known = (label >= 0) if label.ndim == 1 else ~np.isnan(label).all(axis=1)
        if not known.any():
            raise DataError("the split holds no labelled row; check the dataset's labels and splits")
        return (label, scores) if known.all() else (label[known], scores[known])


def finite(scores: Array) -> Floats:
    """Return the scores. Raises RecipeError if some are NaN or infinite: no metric means anything then."""
    bad = scores.size - int(np.isfinite(scores).sum())
    if bad:
        raise RecipeError(
            f"{bad:,} of {scores.size:,} scores are NaN or infinite: training diverged; "
            "lower train.learning_rate, or set train.clip_norm=1.0"
        )
    return scores


def _log_softmax(scores: Floats) -> Floats:
    shifted = scores.astype(np.float64) - scores.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))


class Evaluator:
    """Base of the evaluators: remembers the metric and refuses tasks that it does not measure."""

    Config: ClassVar[type[ComponentConfig]] = ComponentConfig

    higher_is_better: bool = True
    task_types: ClassVar[frozenset[str]] = _CLASSIFY

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        """Raises RecipeError if the metric does not fit the task."""
        self.config: Any = config
        self.graph = graph
        self.metric: str = config.name
        if graph.task_type not in self.task_types:
            raise RecipeError(
                f"evaluate.evaluator={config.name} measures {', '.join(sorted(self.task_types))} tasks; "
                f"{graph.dataset} is a {graph.task_type} task: leave it at auto or choose another"
            )

    def __call__(self, prediction: Prediction) -> dict[str, float]:
        """Measure; the first key is the primary metric. Values are as the field prints them."""
        value = self.measure(prediction)
        if np.isnan(value):
            raise DataError(f"{self.metric} is not defined on this split: it needs labelled rows of both kinds")
        return {self.metric: value}

    def measure(self, prediction: Prediction) -> float:
        """Return the primary metric, or NaN where it is not defined."""
        raise AssertionError(f"{type(self).__name__} measures nothing")

    def score(self, values: dict[str, float]) -> float:
        """Return the primary metric so that higher is better: errors are negated."""
        return values[self.metric] if self.higher_is_better else -values[self.metric]


@EVALUATORS.register("accuracy")
class Accuracy(Evaluator):
    """Share of right predictions; of several label columns the mean of their accuracies, as OGB does."""

    def measure(self, prediction: Prediction) -> float:
        """Accuracy in 0..1."""
        if prediction.single_label:
            label, predicted = prediction.classes()
            return float(np.mean(label == predicted))
        label, score = prediction.columns()
        return metrics.column_accuracy(label, (score > 0).astype(np.float64))


@EVALUATORS.register("f1")
class F1(Evaluator):
    """F1 score, macro (classes weigh alike) or micro (rows weigh alike)."""

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        super().__init__(config, graph)
        self.metric = f"f1_{self.config.average}"

    def measure(self, prediction: Prediction) -> float:
        """F1 in 0..1."""
        if prediction.single_label:
            label, predicted = prediction.classes()
            return metrics.f1_of_classes(label, predicted, self.config.average, prediction.num_classes)
        columns, score = prediction.columns()
        return metrics.f1_of_columns(columns, score > 0, self.config.average)


@EVALUATORS.register("rocauc")
class RocAuc(Evaluator):
    """Area under the ROC curve: mean over label columns as OGB; classes one versus rest; edges against negatives."""

    task_types = _CLASSIFY | {"link"}

    def measure(self, prediction: Prediction) -> float:
        """ROC-AUC in 0..1; a tie counts one half."""
        return _binary_metric(prediction, metrics.rocauc)


@EVALUATORS.register("average_precision")
class AveragePrecision(Evaluator):
    """Average precision: mean over label columns as OGB; one versus rest for classes; edges against negatives."""

    task_types = _CLASSIFY | {"link"}

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        super().__init__(config, graph)
        self.metric = "ap"

    def measure(self, prediction: Prediction) -> float:
        """Average precision in 0..1; rows of equal score enter together."""
        return _binary_metric(prediction, metrics.average_precision)


def _binary_metric(prediction: Prediction, metric: Any) -> float:
    if prediction.positive is not None:
        positive, negative = prediction.pairs()
        label = np.repeat([1, 0], [positive.size, negative.size])
        return float(metric(label, np.concatenate([positive.ravel(), negative.ravel()])))
    return metrics.mean_over_tasks(*prediction.columns(), metric)


@EVALUATORS.register("rmse")
class Rmse(Evaluator):
    """Root mean squared error, the mean over label columns as OGB; lower is better."""

    higher_is_better = False
    task_types = frozenset({"regression"})

    def measure(self, prediction: Prediction) -> float:
        """RMSE in the label's units."""
        return metrics.rmse(*prediction.columns())


@EVALUATORS.register("mae")
class Mae(Evaluator):
    """Mean absolute error, the mean over label columns; lower is better."""

    higher_is_better = False
    task_types = frozenset({"regression"})

    def measure(self, prediction: Prediction) -> float:
        """MAE in the label's units."""
        return metrics.mae(*prediction.columns())


@EVALUATORS.register("r2")
class R2(Evaluator):
    """R², the share of the labels' variance that is explained, the mean over label columns; 0 is their own mean."""

    task_types = frozenset({"regression"})

    def measure(self, prediction: Prediction) -> float:
        """At most 1; below 0 where the mean of the rows' own labels is better."""
        return metrics.r2(*prediction.columns())


@EVALUATORS.register("mrr")
class Mrr(Evaluator):
    """Mean reciprocal rank of true edges among their negatives, with Hits@1, 3 and 10; ties take the middle rank."""

    task_types = frozenset({"link"})

    def __call__(self, prediction: Prediction) -> dict[str, float]:
        """MRR, then the hits that OGB prints beside it."""
        return metrics.mrr(*prediction.pairs())


@EVALUATORS.register("hits")
class Hits(Evaluator):
    """Hits@K: share of true edges that score above the K-th best negative, as OGB does (a tie is a miss)."""

    task_types = frozenset({"link"})

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        super().__init__(config, graph)
        self.metric = f"hits@{self.config.k}"

    def measure(self, prediction: Prediction) -> float:
        """Hits@K in 0..1."""
        return metrics.hits(*prediction.pairs(), self.config.k)


# What data sets call their metric -> the evaluator that measures it.
_BY_METRIC: dict[str, dict[str, Any]] = {
    "accuracy": {"name": "accuracy"},
    "acc": {"name": "accuracy"},
    "f1": {"name": "f1"},
    "f1_macro": {"name": "f1"},
    "f1_micro": {"name": "f1", "average": "micro"},
    "rocauc": {"name": "rocauc"},
    "auc": {"name": "rocauc"},
    "ap": {"name": "average_precision"},
    "average_precision": {"name": "average_precision"},
    "rmse": {"name": "rmse"},
    "mae": {"name": "mae"},
    "r2": {"name": "r2"},
    "mrr": {"name": "mrr"},
}


@EVALUATORS.register("auto")
class Auto(Evaluator):
    """OGB's own evaluator for OGB data sets, else the metric that the data set names."""

    task_types = _CLASSIFY | {"regression", "link"}

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        super().__init__(config, graph)
        chosen = {"name": "ogb"} if graph.ogb_name else evaluator_for(graph.metric)
        self.chosen: Evaluator = EVALUATORS.create(EVALUATORS.config(chosen), graph)
        self.metric, self.higher_is_better = self.chosen.metric, self.chosen.higher_is_better

    def __call__(self, prediction: Prediction) -> dict[str, float]:
        """What the chosen evaluator measures."""
        return self.chosen(prediction)


def evaluator_for(metric: str) -> dict[str, Any]:
    """Return name and options of the evaluator of a metric. Raises DataError naming the known metrics."""
    try:
        check_metric(metric)
    except ValueError as error:
        raise DataError(str(error)) from None
    most = hits_of(metric)
    return _BY_METRIC[metric] if most is None else {"name": "hits", "k": most}


def make_evaluator(config: ComponentConfig, graph: GraphManifest) -> Evaluator:
    """Build the evaluator of a recipe (`recipe.evaluate.evaluator`) for a graph; `auto` is resolved.

    Raises:
        RecipeError: the metric does not fit the task.
        DataError: the data set names a metric that nobody knows.
    """
    evaluator: Evaluator = EVALUATORS.create(config, graph)
    return evaluator.chosen if isinstance(evaluator, Auto) else evaluator
