"""From scores to decisions: probabilities that hold, and thresholds with what comes of them.

Both are chosen on the validation split and shown on another: chosen on the rows that they are shown on, they would look
better than they are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from configs.label_types import LabelType
from configs.values.deciding import CostsConfig, parse_rule, say_rule
from tasks.evaluators import metrics
from tasks.evaluators.metrics import Array, Floats, OrderedRows
from tasks.evaluators.prediction import Prediction
from tasks.kinds.diagnosis.classes import calibration
from tasks.kinds.judged import Threshold

MOST_ROWS = 200_000
"""Of a split, so many are looked at for the temperature."""
_RANGE = (0.02, 50.0)
_RULES = ("f1", *(f"precision={p}" for p in (0.5, 0.8, 0.9, 0.95)), *(f"share={s}" for s in (0.01, 0.05, 0.1)))
_LEAST_GAP = 1e-4
"""Below the lowest score, of which there is no middle; of what it amounts to."""
_DECIDED = ("accuracy", "f1_macro", "f1_micro")
"""Metrics that a threshold decides; others go by all scores."""
_NEVER = 1e9
"""What no score is above."""
_FEWEST_FLAGGED = 20
"""Rows that a precision is of: that of a few says nothing of others."""


def decisions(valid: Prediction, shown: Prediction, costs: CostsConfig | None = None) -> dict[str, Any]:
    """Return what the validation split says of a classifier's scores, and what comes of it on another split.

    Both predictions are of classes, or of one binary label. `temperature`: `value`, and on the other split `nll` and
    `ece` (see `diagnosis.classes.calibration`) without and with it. `thresholds`, of a binary label: a list of `rule`,
    `probability` (the model's own, as predictions have it) from which a row is called positive, and of the other split
    `flagged` (share of rows), `precision`, `recall`, `lift` (precision over the share of positives), and with `costs`
    what mistakes cost a row. `positive`: 0 where, of two classes, that is the first.
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
    chosen_on, binary = _binary(valid), _binary(replace(shown, positive_code=valid.positive_class))
    if chosen_on is None or binary is None:
        return report
    rules = (*_RULES, "cost") if costs is not None else _RULES
    ranked = OrderedRows.of(*chosen_on)
    chosen = {rule: choose_threshold(rule, ranked, costs) for rule in rules}
    thresholds = [
        {"rule": say_rule(rule), "probability": _probability(score), **outcome(*binary, score, costs)}
        for rule, score in chosen.items()
        if score is not None
    ]
    if not thresholds:
        return report
    return report | {"thresholds": thresholds} | ({} if valid.positive_class else {"positive": 0})


def threshold_by(rule: str, valid: Prediction, costs: CostsConfig | None) -> Threshold | None:
    """Return the threshold that a rule chooses on the validation split; None: none does what it asks."""
    binary = _binary(valid)
    assert binary is not None, "the rule was looked at before (`tasks.kinds.measurable.check_graph`)"
    chosen = choose_threshold(rule, OrderedRows.of(*binary), costs)
    return None if chosen is None else Threshold(valid.positive_class, _probability(chosen))


def decided_metrics(
    prediction: Prediction, threshold: Threshold, measure: Callable[[Prediction], dict[str, float]]
) -> dict[str, float]:
    """Return accuracy and F1, those of them that `measure` has, where a threshold decides, not the likelier class."""
    assert prediction.scores is not None
    scores, at = np.array(prediction.scores, np.float64).reshape(len(prediction.scores), -1), threshold.probability
    scores[:, min(threshold.code, scores.shape[1] - 1)] -= np.log(at / (1 - at)) if at < 1 else _NEVER
    return {name: value for name, value in measure(replace(prediction, scores=scores)).items() if name in _DECIDED}


def _probability(score: float) -> float:
    """Return the probability of a score; of infinity one that no row has."""
    return float(np.nextafter(1.0, 2.0) if score == np.inf else metrics.sigmoid(np.array(score)))


def decisions_of_tasks(seen: Mapping[str, Mapping[str, Prediction]], costs: CostsConfig | None) -> dict[str, Any]:
    """Return what a report has of decisions; `seen`: of each task (of one the name is empty) `valid` and `shown`."""
    reports = {name: decisions(own["valid"], own["shown"], costs) for name, own in seen.items() if len(own) == 2}
    tasks = {name: report for name, report in reports.items() if name and report}
    return reports.get("", {}) | ({"tasks": tasks} if tasks else {})


def can_decide(prediction: Prediction, kind: LabelType) -> bool:
    """Whether these are scores of classes, or of one binary label."""
    if kind.one_of_many:
        return prediction.single_label
    return kind.one_decision and prediction.label is not None and prediction.label[:1].size == 1


def fit_temperature(label: Array, logits: Floats) -> float:
    """Return T > 0 that makes softmax(logits / T) likeliest (Guo et al. 2017, section 4.2).

    label int64 (n,), logits (n, C). The log-likelihood has one maximum in 1 / T. 1 where there is nothing to fit.
    """
    from scipy.optimize import minimize_scalar

    if not len(label):
        return 1.0
    fit = minimize_scalar(lambda at: _nll(label, logits / np.exp(at)), bounds=np.log(_RANGE), method="bounded")
    return float(np.exp(fit.x))


def choose_threshold(rule: str, rows: OrderedRows, costs: CostsConfig | None = None) -> float | None:
    """Return the score from which a rule calls a row positive, between two rows' scores: at one of them rounding would
    decide of all that have it. None: no score does.

    The best F1; the least cost, which may be that of calling no row so (infinity); the most recall at a precision, or
    the highest score with a recall; or a share of the rows, as who can look at so many only would take.
    """
    ordered, last_of_score, right = rows
    count, positives, taken = len(ordered), int(right.max(initial=0)), rows.taken
    if not positives or positives == count:
        return None
    precision, recall = right / taken, right / positives
    name, goal = parse_rule(rule)
    if name == "share":
        return _below(rows, int(np.searchsorted(last_of_score, max(0, int(np.ceil(goal * count)) - 1))))
    if name == "cost":
        assert costs is not None
        cost = costs.false_positive * (taken - right) + costs.false_negative * (positives - right)
        best = int(cost.argmin())
        return _below(rows, best) if cost[best] < costs.false_negative * positives else np.inf
    if name == "f1":
        best = int((2 * right / (taken + positives)).argmax())
    elif name == "recall":
        best = int(np.flatnonzero(recall >= goal)[0])
    else:
        reached = np.flatnonzero((precision >= goal) & (taken >= _FEWEST_FLAGGED))
        if not len(reached) or goal <= positives / count:
            return None
        best = int(reached[int(recall[reached].argmax())])
    return _below(rows, best)


def _below(rows: OrderedRows, number: int) -> float:
    """Return the middle between one of the distinct scores, counted from the highest, and the next lower."""
    score, *lower = rows.score[rows.last_of_score[number : number + 2]].astype(np.float64)
    return float((score + lower[0]) / 2 if lower else score - _LEAST_GAP * max(1, abs(score)))


def outcome(label: Array, score: Floats, threshold: float, costs: CostsConfig | None = None) -> dict[str, float]:
    """Return what comes of calling rows with a score from `threshold` on positive; 0 where nothing is called so."""
    flagged = score >= threshold
    right, count = int((label[flagged] == 1).sum()), int(flagged.sum())
    positives = int((label == 1).sum())
    precision = right / count if count else 0.0
    told = {
        "flagged": count / max(1, len(label)),
        "precision": precision,
        "recall": right / positives if positives else 0.0,
        "lift": precision * len(label) / positives if positives else 0.0,
    }
    if costs is not None:
        cost = costs.false_positive * (count - right) + costs.false_negative * (positives - right)
        told["cost"] = cost / max(1, len(label))
    return told


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
    """Return labels and scores (n,) of one binary label, of the class that is looked for; None: there are more."""
    if prediction.scores is None or prediction.scores.shape[-1] > 2:
        return None
    label, score = prediction.looked_for()
    if label.shape[1] != 1:
        return None
    labelled = ~np.isnan(label[:, 0])
    return label[labelled, 0], score[labelled, 0]


def _nll(label: Array, logits: Floats) -> float:
    most = logits.max(axis=1)
    log_sum = most + np.log(np.exp(logits - most[:, None]).sum(axis=1))
    return float(np.mean(log_sum - logits[np.arange(len(label)), label]))
