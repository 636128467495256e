"""Linear models from rows to scores, of scikit-learn's making: ridge for numbers, logistic for classes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np

from configs.label_types import LabelType
from tasks.evaluators.metrics import Array

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
