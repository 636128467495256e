"""Linear models from rows to scores, of scikit-learn's making: ridge for numbers, logistic for classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from configs.label_types import LabelType
from tasks.controls.features import OwnFeatures
from tasks.controls.suite import FittedControl
from tasks.evaluators.metrics import Array
from tasks.storage.graph_store import GraphStore

_ITERATIONS = 200
_LEAST = -1e4
"""Score of a class that no row has."""


@dataclass(frozen=True)
class LinearModel:
    """Scores x W + b, read as a model's: logits of classes, or values of a regression."""

    weight: Array
    """float64 (D, C)."""
    bias: Array
    """float64 (C,)."""

    def __call__(self, x: Array) -> Array:
        """Score rows (n, D): float32 (n, C)."""
        return (x @ self.weight + self.bias).astype(np.float32)


@dataclass(frozen=True)
class LinearControl(FittedControl):
    """A linear model of what rows have themselves."""

    store: GraphStore
    features: OwnFeatures
    model: LinearModel
    places: Callable[[Array], Array]
    """From rows that splits are of, int64 (n,), to those that `features` has."""

    @classmethod
    def fit(
        cls,
        store: GraphStore,
        features: OwnFeatures,
        sample: Array,
        label: Array,
        num_scores: int,
        places: Callable[[Array], Array],
    ) -> LinearControl:
        """Fit it, and what standardizes the features, to a sample of the training rows, int64 (n,), and their labels.

        For labels see `fit`.
        """
        at = places(sample)
        features.fit(at)
        model = fit(features.whole(at), label, store.manifest.label_type, num_scores)
        return cls(store, features, model, places)

    @classmethod
    def of(
        cls, store: GraphStore, features: OwnFeatures, state: Mapping[str, Array], places: Callable[[Array], Array]
    ) -> LinearControl:
        """Make it of what `state` returned."""
        features.settle(state)
        return cls(store, features, LinearModel(state["weight"], state["bias"]), places)

    def scores(self, rows: Array) -> Array:
        """Score rows, some at a time."""
        scores = np.empty((len(rows), len(self.model.bias)), np.float32)
        for part, x in self.features.parts(self.places(rows)):
            scores[part] = self.model(x)
        return scores

    def state(self) -> tuple[dict[str, Array], list[str]]:
        """Return what standardizes features, and the model's weights."""
        return self.features.state() | {"weight": self.model.weight, "bias": self.model.bias}, []


def fit(x: Array, label: Array, kind: LabelType, num_scores: int) -> LinearModel:
    """Fit to rows; takes one thread, so that the same rows give the same bits.

    `x`: float32 (n, D), standardized. `label`: int (n,) of one class a row, -1 for none; or float (n, T), NaN for none.
    `kind`: type of the label, which chooses the loss. `num_scores`: classes, or labels.
    """
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a control that is nearly fitted is one
        if kind.one_of_many:
            return _classes(x, label.reshape(len(x)), num_scores)
        columns = label.reshape(len(x), -1).astype(np.float64)
        if np.issubdtype(label.dtype, np.integer):
            columns[columns < 0] = np.nan
        models = [_of_column(x[~np.isnan(column)], column[~np.isnan(column)], kind) for column in columns.T]
        return LinearModel(np.stack([weight for weight, _ in models], 1), np.array([bias for _, bias in models]))


def _of_column(x: Array, label: Array, kind: LabelType) -> tuple[Array, float]:
    """Return weights and bias of one label, of rows that have it."""
    from sklearn.linear_model import LogisticRegression, Ridge

    if not kind.is_number:
        if len(np.unique(label)) < 2:
            return np.zeros(x.shape[1]), float(label.sum() > 0) * 2 - 1
        model = LogisticRegression(max_iter=_ITERATIONS).fit(x, label)
        return model.coef_[0], float(model.intercept_[0])
    if not len(label):
        return np.zeros(x.shape[1]), 0.0
    mean, scale = label.mean(), label.std() or 1.0  # so that the penalty means the same in all units
    model = Ridge().fit(x.astype(np.float64), (label - mean) / scale)
    return model.coef_ * scale, float(model.intercept_ * scale + mean)


def _classes(x: Array, label: Array, num_classes: int) -> LinearModel:
    from sklearn.linear_model import LogisticRegression

    x, label = x[label >= 0], label[label >= 0]
    weight, bias = np.zeros((x.shape[1], num_classes)), np.full(num_classes, _LEAST)
    present = np.unique(label)
    if len(present) < 2:
        bias[present] = 0
        return LinearModel(weight, bias)
    model = LogisticRegression(max_iter=_ITERATIONS).fit(x, label)
    if len(present) == 2:  # one column for both
        weight[:, present[1]], bias[present] = model.coef_[0], (0, model.intercept_[0])
    else:
        weight[:, present], bias[present] = model.coef_.T, model.intercept_
    return LinearModel(weight, bias)
