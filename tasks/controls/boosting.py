"""Gradient boosting over trees (LightGBM), from rows to scores: what a data scientist would try first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from configs.label_types import LabelType
from tasks.evaluators.metrics import Array

_ROUNDS, _PATIENCE = 500, 25
"""Trees, and how many more may not help the validation split before it ends."""
_OPTIONS: dict[str, Any] = {
    "learning_rate": 0.05,
    "num_leaves": 31,
    "min_data_in_leaf": 20,
    "feature_fraction": 0.9,
    "seed": 1,
    # Equal rows give equal trees, with a number of threads.
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
}


@dataclass(frozen=True)
class Boosted:
    """Trees that score rows as a model does: logits of classes, or values of a regression."""

    trees: Any
    """A `lightgbm.Booster`; None: the training rows say nothing but `constant`."""
    num_scores: int
    constant: tuple[float, ...] = ()
    """What each of `num_scores` scores is then."""

    def __call__(self, x: Array) -> Array:
        """Score rows (n, D): float32 (n, C)."""
        if self.trees is None:
            return np.tile(np.array(self.constant, np.float32), (len(x), 1))
        scores = self.trees.predict(x, raw_score=True).reshape(len(x), self.num_scores)
        return np.asarray(scores, np.float32)


@dataclass(frozen=True)
class BoostedColumns:
    """Trees for each of several labels, or for one."""

    columns: tuple[Boosted, ...]

    def __call__(self, x: Array) -> Array:
        """Score rows (n, D): float32 (n, T)."""
        return np.concatenate([column(x) for column in self.columns], axis=1)


@dataclass(frozen=True)
class LabelledRows:
    """Rows with labels: x float32 (n, D), NaN where a cell is empty, and label (n,) or (n, T), a class or a number."""

    x: Array
    label: Array

    def known(self) -> tuple[Array, Array]:
        """Return those that have a label, of one column: x and float64 (n,). A class of -1 is none, and so is NaN."""
        label = self.label.reshape(len(self.x)).astype(np.float64)
        labelled = ~np.isnan(label) if self.label.dtype.kind == "f" else label >= 0
        return self.x[labelled], label[labelled]


@dataclass(frozen=True)
class Goal:
    """What is predicted, and by what it is judged."""

    label_type: LabelType
    num_scores: int
    metric: str
    threads: int


def fit_columns(train: LabelledRows, valid: LabelledRows, categories: list[int], goal: Goal) -> BoostedColumns:
    """Fit trees to each column of the labels; see `fit`. `goal` is that of all columns."""
    if train.label.ndim == 1 or train.label.shape[1] == 1:
        return BoostedColumns((fit(train, valid, categories, goal),))
    one = replace(goal, label_type=goal.label_type.of_a_column, num_scores=1)
    columns = []
    for column in range(train.label.shape[1]):
        samples = [LabelledRows(sample.x, sample.label[:, column]) for sample in (train, valid)]
        columns.append(fit(samples[0], samples[1], categories, one))
    return BoostedColumns(tuple(columns))


def fit(train: LabelledRows, valid: LabelledRows, categories: list[int], goal: Goal) -> Boosted:
    """Fit trees to `train`, as many as the rows of `valid` ask for; `categories` are columns of codes."""
    import lightgbm

    (x, label), (x_valid, label_valid) = train.known(), valid.known()
    if len(np.unique(label)) < 2 or not x.shape[1]:
        return _constant(label, goal)
    options = {**_OPTIONS, "num_threads": goal.threads}
    if goal.label_type.one_of_many:
        options |= {"objective": "multiclass", "num_class": goal.num_scores}
    elif goal.label_type.is_yes_or_no:
        options |= {"objective": "binary"}
    else:
        options |= {"objective": "regression_l1" if goal.metric == "mae" else "regression"}
    data = lightgbm.Dataset(x, label, categorical_feature=categories, params=options)
    callbacks: list[Any] = [lightgbm.early_stopping(_PATIENCE, verbose=False)] if len(label_valid) else []
    held = [data.create_valid(x_valid, label_valid)] if len(label_valid) else []
    trees = lightgbm.train(options, data, _ROUNDS, valid_sets=held, callbacks=callbacks)
    return Boosted(trees, goal.num_scores)


def _constant(label: Array, goal: Goal) -> Boosted:
    """Return the mean, or the most frequent class, of labels (n,)."""
    scores = np.zeros(goal.num_scores)
    if goal.label_type.is_number:
        scores[:] = label.mean() if len(label) else 0.0
    elif goal.label_type.is_yes_or_no:
        scores[:] = 1.0 if len(label) and label.mean() >= 0.5 else -1.0
    elif len(label):
        scores[np.bincount(label.astype(np.int64)).argmax()] = 1.0
    return Boosted(None, goal.num_scores, tuple(scores.tolist()))
