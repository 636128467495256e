"""From scores to decisions: probabilities that hold, and thresholds with what comes of them.

Both are chosen on the validation split and shown on another: chosen on the rows that they are shown on, they would look
better than they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from configs.label_types import LabelType
from tasks.evaluators import metrics
from tasks.evaluators.metrics import Array, Floats
from tasks.evaluators.prediction import Prediction
from tasks.kinds.diagnosis.classes import calibration

MOST_ROWS = 200_000
"""Of a split, so many are looked at for the temperature."""
_RANGE = (0.02, 50.0)
_STEPS = 60
_GOLDEN = (np.sqrt(5) - 1) / 2
_PRECISIONS = (0.5, 0.8, 0.9, 0.95)
_SHARES = (0.01, 0.05, 0.1)
_FEWEST_FLAGGED = 20
"""Rows that a precision is of: that of a few says nothing of others."""


def decisions(valid: Prediction, shown: Prediction) -> dict[str, Any]:
    """Return what the validation split says of a classifier's scores, and what comes of it on another split.

    Both predictions are of classes, or of one binary label. `temperature`: `value`, and on the other split `nll` and
    `ece` (see `diagnosis.classes.calibration`) without and with it. `thresholds`, of a binary label: a list of `rule`,
    `probability` (the model's own, as predictions have it) from which a row is called positive, and of the other split
    `flagged` (share of rows), `precision`, `recall` and `lift` (precision over the share of positives). `positive`: 0
    where, of two classes, that is the first.
    """
    label, logits = _logits(shown)
    if not len(label):
        return {}
    temperature, outcomes = fit_temperature(*_logits(valid)), dict[str, Any]()
    for name, t in (("before", 1.0), ("after", temperature)):
        confidence = metrics.probabilities(logits / t).max(axis=1)
        ece = float(calibration(confidence, (logits / t).argmax(axis=1) == label)["ece"])
        outcomes[name] = {"nll": _nll(label, logits / t), "ece": ece}
    report: dict[str, Any] = {"temperature": {"value": temperature, **outcomes}}
    chosen_on, binary = _binary(valid), _binary(shown)
    if chosen_on is None or binary is None:
        return report
    turned = valid.single_label and (chosen_on[0] == 1).sum() > len(chosen_on[0]) / 2
    if turned:  # of two classes of equal standing the rarer one is looked for
        chosen_on, binary = ((1 - label, -score) for label, score in (chosen_on, binary))
    thresholds = choose_thresholds(*chosen_on)
    if not thresholds:
        return report
    report["thresholds"] = [
        {"rule": rule, "probability": float(metrics.sigmoid(np.array(score))), **outcome(*binary, score)}
        for rule, score in thresholds
    ]
    return report | ({"positive": 0} if turned else {})


class DecisionsSeen:
    """Takes the splits of an evaluation, in any order, and finds what the validation split says of one of them."""

    def __init__(self, shown: str) -> None:
        """`shown`: the split that decisions are shown on; on the validation split itself they are not."""
        self._shown = shown
        self._seen: dict[str, dict[str, Prediction]] = {}
        self._by_task: dict[str, dict[str, Any]] = {}

    def see(self, split: str, name: str, kind: LabelType, prediction: Prediction) -> None:
        """Take a split's prediction of a task of this name (empty: the only one), whose labels are of a type."""
        if self._shown == "valid" or split not in ("valid", self._shown) or not can_decide(prediction, kind):
            return
        splits = self._seen.setdefault(name, {})
        splits[split] = prediction
        if len(splits) == len(("valid", self._shown)):
            self._by_task[name] = decisions(splits.pop("valid"), splits.pop(self._shown))

    def record(self) -> dict[str, Any]:
        """Return what a report has of them."""
        tasks = {name: report for name, report in self._by_task.items() if name and report}
        return self._by_task.get("", {}) | ({"tasks": tasks} if tasks else {})


def can_decide(prediction: Prediction, kind: LabelType) -> bool:
    """Whether these are scores of classes, or of one binary label."""
    if kind.one_of_many:
        return prediction.single_label
    return kind.one_decision and prediction.label is not None and prediction.label[:1].size == 1


def fit_temperature(label: Array, logits: Floats) -> float:
    """Return T > 0 that makes softmax(logits / T) likeliest (Guo et al. 2017, section 4.2).

    label int64 (n,), logits (n, C). The log-likelihood has one maximum in 1 / T: golden section search finds it. 1
    where there is nothing to fit.
    """
    if not len(label):
        return 1.0
    low, high = np.log(_RANGE[0]), np.log(_RANGE[1])
    inner = [high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)]
    costs = [_nll(label, logits / np.exp(at)) for at in inner]
    for _ in range(_STEPS):
        if costs[0] <= costs[1]:
            high, inner[1], costs[1] = inner[1], inner[0], costs[0]
            inner[0] = high - _GOLDEN * (high - low)
            costs[0] = _nll(label, logits / np.exp(inner[0]))
        else:
            low, inner[0], costs[0] = inner[0], inner[1], costs[1]
            inner[1] = low + _GOLDEN * (high - low)
            costs[1] = _nll(label, logits / np.exp(inner[1]))
    return float(np.exp((low + high) / 2))


def choose_thresholds(label: Array, score: Floats) -> list[tuple[str, float]]:
    """Return rules and the score from which each calls a row positive; label (n,) of 0 and 1.

    The best F1; the most recall at a precision, where that is reached; and shares of the rows, as who can look at so
    many only would take.
    """
    order = np.argsort(-score, kind="stable")
    ordered, hit = score[order], label[order] == 1
    positives = int(hit.sum())
    if not positives or positives == len(label):
        return []
    last_of_score = np.flatnonzero(np.append(np.diff(ordered) != 0, True))
    right, taken = np.cumsum(hit)[last_of_score], last_of_score + 1
    precision, recall = right / taken, right / positives
    f1 = 2 * right / (taken + positives)
    thresholds = [("best F1", float(ordered[last_of_score[int(f1.argmax())]]))]
    for precision_goal in _PRECISIONS:
        reached = np.flatnonzero((precision >= precision_goal) & (taken >= _FEWEST_FLAGGED))
        if len(reached) and precision_goal > positives / len(label):
            best = reached[int(recall[reached].argmax())]
            thresholds.append((f"precision at least {precision_goal:g}", float(ordered[last_of_score[best]])))
    for share in _SHARES:
        place = max(0, int(np.ceil(share * len(label))) - 1)
        thresholds.append((f"the highest {share:.0%}", float(ordered[place])))
    return thresholds


def outcome(label: Array, score: Floats, threshold: float) -> dict[str, float]:
    """Return what comes of calling rows with a score from `threshold` on positive; 0 where nothing is called so."""
    flagged = score >= threshold
    right, count = int((label[flagged] == 1).sum()), int(flagged.sum())
    positives = int((label == 1).sum())
    precision = right / count if count else 0.0
    return {
        "flagged": count / max(1, len(label)),
        "precision": precision,
        "recall": right / positives if positives else 0.0,
        "lift": precision * len(label) / positives if positives else 0.0,
    }


def _logits(prediction: Prediction) -> tuple[Array, Floats]:
    """Return the labels int64 (n,) and the logits float64 (n, C) of labelled rows; of one binary label C = 2."""
    binary = _binary(prediction)
    if binary is not None:
        label, score = (values[_evenly(len(values))] for values in binary)
        logits = np.stack([np.zeros(len(score)), score.astype(np.float64)], 1)
    else:
        assert prediction.label is not None
        assert prediction.scores is not None
        labelled = np.flatnonzero((prediction.label >= 0) & (prediction.label < prediction.scores.shape[1]))
        rows = labelled[_evenly(len(labelled))]
        label, logits = prediction.label[rows], prediction.scores[rows].astype(np.float64)
    return label.astype(np.int64), logits


def _evenly(count: int) -> slice:
    """Return at most MOST_ROWS of so many rows."""
    return slice(None, None, max(1, -(-count // MOST_ROWS)))


def _binary(prediction: Prediction) -> tuple[Array, Floats] | None:
    """Return labels and scores (n,) of one binary label; None: there are more classes."""
    if prediction.scores is None or prediction.scores.shape[-1] > 2:
        return None
    label, score = prediction.columns()
    if label.shape[1] != 1:
        return None
    labelled = ~np.isnan(label[:, 0])
    return label[labelled, 0], score[labelled, 0]


def _nll(label: Array, logits: Floats) -> float:
    most = logits.max(axis=1)
    log_sum = most + np.log(np.exp(logits - most[:, None]).sum(axis=1))
    return float(np.mean(log_sum - logits[np.arange(len(label)), label]))
