"""What a report draws beside the metrics: small plain values, whatever the size of the split."""

from __future__ import annotations

from typing import Any

import numpy as np

from configs.label_types import LabelType
from tasks.arrays import blocks
from tasks.evaluators import metrics
from tasks.evaluators.metrics import Array, Floats, OrderedRows, probabilities, sigmoid
from tasks.evaluators.prediction import Prediction
from tasks.kinds.judged import Threshold

TOP_CLASSES = 30
MAX_CLASSES_LISTED = 1000
_BINS = 40
_CALIBRATION_BINS = 10
_POINTS = 200
_ROWS_AT_A_TIME = 1 << 17
OTHER = "other"


def diagnose(prediction: Prediction, kind: LabelType, names: list[str] | None = None) -> dict[str, Any]:
    """Return what there is to draw about a split.

    multiclass: `confusion`, `per_class`, `calibration`; binary, and of two classes the rarer: these and `roc`,
    `precision_recall`, `score_classes`; multilabel: `per_task`; regression: `scatter`.
    """
    if kind.is_number:
        return {"scatter": scatter(*prediction.columns())}
    if kind.one_of_many and prediction.single_label:
        return _multiclass(prediction, names)
    label, score = prediction.columns()
    if label.shape[1] == 1:
        return _binary(label[:, 0], score[:, 0], names)
    return {"per_task": per_task(label, score)}


def _multiclass(prediction: Prediction, names: list[str] | None) -> dict[str, Any]:
    label, predicted = prediction.classes()
    assert prediction.scores is not None
    assert prediction.label is not None
    num_classes = max(prediction.scores.shape[1], int(label.max()) + 1, 2)
    decided = _decided(label, predicted, num_classes, names)
    if num_classes == prediction.scores.shape[1] == 2:
        is_positive, score = (values[:, 0] for values in prediction.looked_for())
        return decided | _of_one(is_positive, score, _names(names, 2)[prediction.positive_class])
    labelled = prediction.label >= 0
    confidence = np.empty(len(labelled))  # probability of each row's likeliest class
    for rows in blocks(len(labelled), _ROWS_AT_A_TIME):
        confidence[rows] = probabilities(prediction.scores[rows]).max(axis=1)
    return decided | {"calibration": calibration(confidence[labelled], label == predicted)}


def _binary(label: Array, score: Floats, names: list[str] | None) -> dict[str, Any]:
    labelled = ~np.isnan(label)
    truth, score = label[labelled].astype(np.int64), score[labelled]
    decided = _decided(truth, (score > 0).astype(np.int64), 2, names)
    return decided | _of_one(truth == 1, score, _names(names, 2)[1])


def _of_one(is_positive: Array, score: Floats, name: str) -> dict[str, Any]:
    """Return what there is to draw about how one class is told from the other; both (n,)."""
    probability, edges = sigmoid(score), np.linspace(0, 1, _BINS + 1)
    counts = [np.histogram(probability[is_positive == side], edges)[0].tolist() for side in (True, False)]
    return {
        "roc": roc_curve(is_positive, score),
        "precision_recall": precision_recall(is_positive, score),
        "score_classes": {"edges": edges.tolist(), "of": name, "positive": counts[0], "negative": counts[1]},
        "calibration": {**calibration(probability, is_positive), "of": name},
    }


def _decided(label: Array, predicted: Array, num_classes: int, names: list[str] | None) -> dict[str, Any]:
    counts, names = metrics.confusion_matrix(label, predicted, num_classes), _names(names, num_classes)
    return {"confusion": top_confusion(counts, names), "per_class": per_class(counts, names)}


def _names(names: list[str] | None, num_classes: int) -> list[str]:
    return names if names is not None and len(names) >= num_classes else [str(code) for code in range(num_classes)]


def decided_at(prediction: Prediction, threshold: Threshold, names: list[str] | None) -> dict[str, Any]:
    """Return `confusion` and `per_class` of one label of yes or no, or two classes, where a threshold decides."""
    label, score = (values[:, 0] for values in prediction.columns())
    labelled = ~np.isnan(label)
    likely = sigmoid(score if threshold.code else -score) >= threshold.probability
    predicted = np.where(likely, threshold.code, 1 - threshold.code)
    return _decided(label[labelled].astype(np.int64), predicted[labelled], 2, names)


def top_confusion(counts: Array, names: list[str]) -> dict[str, Any]:
    """Return the confusion matrix of the 30 classes with most true rows; the rest is pooled as `other`.

    Returns: `classes` (names) and `counts` (true class down, predicted across).
    """
    num_classes = len(counts)
    if num_classes <= TOP_CLASSES + 1:
        return {"classes": names[:num_classes], "counts": counts.tolist()}
    keep = np.sort(np.argsort(-counts.sum(axis=1), kind="stable")[:TOP_CLASSES])
    group = np.full(num_classes, TOP_CLASSES)
    group[keep] = np.arange(TOP_CLASSES)
    pooled = np.zeros((TOP_CLASSES + 1, TOP_CLASSES + 1), np.int64)
    np.add.at(pooled, (group[:, None], group[None, :]), counts)
    return {"classes": [names[c] for c in keep] + [OTHER], "counts": pooled.tolist()}


def per_class(counts: Array, names: list[str]) -> list[dict[str, Any]]:
    """Return precision, recall, F1 and rows of each class that occurs, most frequent first."""
    right = np.diag(counts).astype(np.float64)
    true, guessed = counts.sum(axis=1), counts.sum(axis=0)
    f1 = metrics.class_f1(counts)
    order = np.argsort(-true, kind="stable")
    listed = [c for c in order if true[c] + guessed[c] > 0][:MAX_CLASSES_LISTED]
    return [
        {
            "name": names[c],
            "precision": float(right[c] / guessed[c]) if guessed[c] else 0.0,
            "recall": float(right[c] / true[c]) if true[c] else 0.0,
            "f1": float(f1[c]),
            "rows": int(true[c]),
        }
        for c in listed
    ]


def calibration(confidence: Floats, right: Array) -> dict[str, Any]:
    """Return, for bins of a probability, rows, its mean and how often it was right; and the ECE.

    The probability is the predicted class's, or that of one class whatever is predicted. ECE: mean over rows of
    |accuracy - confidence| of their bin (Guo et al. 2017, On Calibration of Modern Neural Networks, section 2).
    """
    place = np.minimum((confidence * _CALIBRATION_BINS).astype(np.int64), _CALIBRATION_BINS - 1)
    rows = np.bincount(place, minlength=_CALIBRATION_BINS)
    mean = np.bincount(place, confidence, minlength=_CALIBRATION_BINS) / np.maximum(1, rows)
    accuracy = np.bincount(place, right.astype(np.float64), minlength=_CALIBRATION_BINS) / np.maximum(1, rows)
    ece = float(np.sum(rows * np.abs(accuracy - mean)) / max(1, rows.sum()))
    return {"rows": rows.tolist(), "confidence": mean.tolist(), "accuracy": accuracy.tolist(), "ece": ece}


def roc_curve(label: Array, score: Floats) -> dict[str, list[float]]:
    """Return false and true positive rates at evenly spaced ranks of the score."""
    rows = OrderedRows.of(label, score)
    right, wrong = rows.right, rows.taken - rows.right
    chosen = np.unique(np.linspace(0, len(right) - 1, _POINTS).round().astype(np.int64))
    return {
        "false_positive": [0.0, *(wrong[chosen] / max(1, wrong[-1])).tolist()],
        "true_positive": [0.0, *(right[chosen] / max(1, right[-1])).tolist()],
    }


def precision_recall(label: Array, score: Floats) -> dict[str, Any]:
    """Return recall, evenly spaced, and the precision with it; and the share of positive rows."""
    rows = OrderedRows.of(label, score)
    recall, precision = rows.right / max(1, rows.right[-1]), rows.right / rows.taken
    chosen = np.unique(np.searchsorted(recall, np.linspace(recall[0], 1, _POINTS)).clip(max=len(recall) - 1))
    share = float(rows.right[-1] / rows.taken[-1])
    return {"recall": recall[chosen].tolist(), "precision": precision[chosen].tolist(), "share": share}


def per_task(label: Array, score: Floats) -> list[dict[str, Any]]:
    """Return ROC-AUC, positives and labelled rows of each label column (the first 1000)."""
    result = []
    for column in range(min(label.shape[1], MAX_CLASSES_LISTED)):
        labelled = ~np.isnan(label[:, column])
        truth = label[labelled, column]
        area = metrics.rocauc(truth, score[labelled, column])
        result.append(
            {
                "task": column,
                "rows": int(labelled.sum()),
                "positive": int((truth == 1).sum()),
                "rocauc": None if np.isnan(area) else area,
            }
        )
    return result


def scatter(label: Array, value: Floats) -> dict[str, Any]:
    """Return a histogram of predicted against true values over all columns (`counts[true][predicted]`)."""
    labelled = ~np.isnan(label)
    truth, guess = label[labelled], value[labelled].astype(np.float64)
    low, high = float(min(truth.min(), guess.min())), float(max(truth.max(), guess.max()))
    high = high if high > low else low + 1.0
    counts, edges, _ = np.histogram2d(truth, guess, bins=_BINS, range=((low, high), (low, high)))
    residual, residual_edges = np.histogram(guess - truth, bins=_BINS)
    return {
        "edges": edges.tolist(),
        "counts": counts.astype(np.int64).tolist(),
        "residuals": {"edges": residual_edges.tolist(), "counts": residual.tolist()},
    }


def ranking(positive: Floats, negative: Floats) -> dict[str, Any]:
    """Return histograms of the scores of true and of false edges, and of the ranks of true edges (powers of two)."""
    rank = metrics.ranks(positive, negative)
    low = float(min(positive.min(), negative.min()))
    high = float(max(positive.max(), negative.max()))
    edges = np.linspace(low, high if high > low else low + 1.0, _BINS + 1)
    pool = negative.shape[-1]
    rank_edges = 2.0 ** np.arange(0, int(np.ceil(np.log2(pool + 2))) + 1)
    return {
        "edges": edges.tolist(),
        "positive": np.histogram(positive, edges)[0].tolist(),
        "negative": np.histogram(negative, edges)[0].tolist(),
        "rank_edges": rank_edges.tolist(),
        "rank_counts": np.histogram(rank, rank_edges)[0].tolist(),
        "median_rank": float(np.median(rank)),
        "num_negatives": int(pool),
    }
