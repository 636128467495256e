"""Metrics as plain functions on NumPy arrays; each states what it does with ties and with missing labels.

A label of NaN (float labels) or -1 (class indices) is missing and is left out. A score is higher for a likelier class
or edge. n rows, C classes, T label columns ("tasks" in OGB's words), K negatives a positive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tasks.arrays import blocks
from tasks.ranking.ranks import TripleRanks

Array = NDArray[Any]
Floats = NDArray[np.floating[Any]]

_ROWS_AT_A_TIME = 4096
_SCORES_AT_A_TIME = 1 << 22


class OrderedRows(NamedTuple):
    """Rows of 0 and 1 by their scores, the highest first."""

    score: Floats
    """(n,), descending."""
    last_of_score: Array
    """Place of the last row of each distinct score, (k,)."""
    right: Array
    """Positive rows up to there, (k,)."""

    @classmethod
    def of(cls, label: Array, score: Floats) -> OrderedRows:
        """Sort them; a label that is not 1 counts as 0."""
        order = np.argsort(-score, kind="stable")
        ordered = score[order]
        last_of_score = np.flatnonzero(np.append(np.diff(ordered) != 0, True)[: len(ordered)])
        return cls(ordered, last_of_score, np.cumsum(label[order] == 1)[last_of_score])

    @property
    def taken(self) -> Array:
        """Rows up to there, (k,)."""
        return self.last_of_score + 1


def rocauc(label: Array, score: Floats) -> float:
    """Area under the ROC curve of one binary label, (n,) of 0 and 1; ties of a positive and a negative count one half.

    It is the share of (positive, negative) pairs in the right order; NaN if one of the two classes is absent.
    """
    positive = label == 1
    num_positive = int(positive.sum())
    num_negative = len(label) - num_positive
    if num_positive == 0 or num_negative == 0:
        return float("nan")
    ordered = np.sort(score[~positive])
    below = np.searchsorted(ordered, score[positive], side="left")
    not_above = np.searchsorted(ordered, score[positive], side="right")
    return float((below.sum(dtype=np.float64) + not_above.sum(dtype=np.float64)) / 2 / num_positive / num_negative)


def average_precision(label: Array, score: Floats) -> float:
    """Average precision of one binary label: sum of (recall_i - recall_(i-1)) * precision_i over distinct scores.

    No interpolation; rows with equal scores enter together (scikit-learn's convention). NaN if no row is positive.
    """
    rows = OrderedRows.of(label, score)
    if not len(label) or rows.right[-1] == 0:
        return float("nan")
    gained = np.diff(rows.right, prepend=0) / rows.right[-1]
    return float(np.sum(gained * (rows.right / rows.taken)))


def first_rows(count: int, rows: str) -> int:
    """Return how many rows of so many `100` or `1%` are: at least one, at most all."""
    wanted = round(float(rows[:-1]) / 100 * count) if rows.endswith("%") else int(rows)
    return min(max(1, wanted), count)


def positives_among(label: Array, score: Floats, first: int) -> float:
    """Return how many of the `first` rows with the highest scores are positive; of rows that tie with the last the
    share that has room."""
    last = np.partition(score, len(score) - first)[len(score) - first]
    above, ties, hit = score > last, score == last, label == 1
    room = (first - np.count_nonzero(above)) / np.count_nonzero(ties)
    return float(np.count_nonzero(hit & above) + room * np.count_nonzero(hit & ties))


def rocauc_of_pairs(positive: Floats, negative: Floats) -> float:
    """`rocauc` of true edges' scores (n,) and those of negatives, of any shape.

    There may be a thousand negatives for each edge: they are never sorted, nor copied, as a whole.
    """
    if not positive.size or not negative.size:
        return float("nan")
    count, higher, not_lower = _negatives_above(positive, negative)
    beaten = negative.size - 0.5 * (higher + not_lower)
    return float(np.sum(count * beaten) / positive.size / negative.size)


def average_precision_of_pairs(positive: Floats, negative: Floats) -> float:
    """`average_precision` of true edges' scores (n,) and those of negatives, of any shape, as in `rocauc_of_pairs`."""
    if not positive.size:
        return float("nan")
    count, _, not_lower = _negatives_above(positive, negative)
    true_positives = np.cumsum(count[::-1])[::-1]
    return float(np.sum(count * (true_positives / (true_positives + not_lower))) / positive.size)


def pr_auc_of_pairs(positive: Floats, negative: Floats) -> float:
    """Area under the curve of precision over recall, by trapezoids: `auc(*precision_recall_curve)` of scikit-learn.

    Pairs of equal score enter together. The curve begins at recall 0 and precision 1.
    """
    score = np.concatenate([positive.ravel(), negative.ravel()])
    order = np.argsort(-score, kind="stable")
    true = np.cumsum(order < positive.size)
    last = np.append(np.flatnonzero(np.diff(score[order])), len(order) - 1)  # of each score
    recall = np.append(0.0, true[last] / positive.size)
    precision = np.append(1.0, true[last] / (last + 1))
    return float(np.sum(np.diff(recall) * (precision[1:] + precision[:-1]) / 2))


def f1_of_pairs(positive: Floats, negative: Floats) -> float:
    """F1 where as many of the best pairs are taken as edges as there are; all that tie with the last one too.

    So links are measured in the field where no threshold is given (GATNE, KDD 2019).
    """
    score = np.concatenate([positive.ravel(), negative.ravel()])
    threshold = np.partition(score, len(score) - positive.size)[len(score) - positive.size]
    true = np.count_nonzero(positive >= threshold)
    return float(2 * true / (positive.size + np.count_nonzero(score >= threshold)))


def _negatives_above(positive: Floats, negative: Floats) -> tuple[Array, Array, Array]:
    """Return how many positives have each distinct score, ascending, and how many negatives are above and not below it.

    int64 (distinct scores,) each.
    """
    score, count = np.unique(positive, return_counts=True)
    higher, not_lower = np.zeros(len(score), np.int64), np.zeros(len(score), np.int64)
    every = negative.reshape(-1)
    # Parts smaller than the scores that are looked up in them would take longer and save nothing.
    for part in blocks(len(every), max(_SCORES_AT_A_TIME, len(score))):
        ordered = np.sort(every[part])
        higher += len(ordered) - np.searchsorted(ordered, score, side="right")
        not_lower += len(ordered) - np.searchsorted(ordered, score, side="left")
    return count, higher, not_lower


def mean_over_tasks(label: Array, score: Floats, metric: Any) -> float:
    """Average a binary metric over label columns, (n, T) of 0, 1 and NaN, each on its own labelled rows, as OGB does.

    Columns without both a positive and a negative are left out (the metric is not defined there); NaN if none is left.
    """
    columns = _labelled_columns(label, score)
    return _mean(metric(truth, guess) for truth, guess in columns if (truth == 1).any() and (truth == 0).any())


def column_accuracy(label: Array, predicted: Array) -> float:
    """Share of right predictions a column, averaged over the columns that have labels; (n, T) each, NaN: missing."""
    labelled = ~np.isnan(label)
    right = (label == predicted) & labelled
    count = labelled.sum(axis=0)
    return float(np.mean(right.sum(axis=0)[count > 0] / count[count > 0])) if count.any() else float("nan")


def confusion_matrix(label: Array, predicted: Array, num_classes: int) -> NDArray[np.int64]:
    """Count rows by true class (rows of the result) and predicted class (columns); (C, C)."""
    flat = label.astype(np.int64) * num_classes + predicted.astype(np.int64)
    return np.bincount(flat, minlength=num_classes * num_classes).reshape(num_classes, num_classes)


def class_f1(confusion: NDArray[np.int64]) -> Floats:
    """F1 of each class, 2 TP / (2 TP + FP + FN); 0 where it is never right, NaN where it neither occurs nor is guessed.

    `confusion`: (C, C), true classes down, predicted across.
    """
    right = np.diag(confusion).astype(np.float64)
    total = confusion.sum(axis=0) + confusion.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(total > 0, 2 * right / total, np.nan)


def f1_of_classes(label: Array, predicted: Array, average: str, num_classes: int | None = None) -> float:
    """F1 of a single-label problem; `macro` averages over classes that occur in labels or predictions, `micro` pools.

    With `num_classes` only classes below it are averaged over; predictions of others are misses of the true class.
    (Micro-F1 of a single-label problem equals accuracy.)
    """
    if not len(label):
        return float("nan")
    confusion = confusion_matrix(label, predicted, int(max(label.max(), predicted.max())) + 1)
    if average == "micro":
        return float(np.trace(confusion) / confusion.sum())
    return float(np.nanmean(class_f1(confusion)[:num_classes]))


def f1_of_columns(label: Array, predicted: Array, average: str) -> float:
    """F1 of a multi-label problem over entries that are labelled; (n, T) of 0, 1 and NaN (missing).

    `macro` averages over columns (0 where neither a label nor a prediction is positive, as scikit-learn does),
    `micro` pools all entries. Of a single column the F1 of its positive class.
    """
    labelled = ~np.isnan(label)
    truth, guess = (label == 1) & labelled, (predicted == 1) & labelled
    right = (truth & guess).sum(axis=0).astype(np.float64)
    total = truth.sum(axis=0) + guess.sum(axis=0)
    if average == "micro":
        return float(2 * right.sum() / max(1, total.sum()))
    return float(np.mean(2 * right / np.maximum(1, total)))


def rmse(label: Array, value: Floats) -> float:
    """Root of the mean squared error a column, averaged over the columns that have labels (as OGB); (n, T) each."""
    return _mean(np.sqrt(np.mean((truth - guess) ** 2)) for truth, guess in _labelled_columns(label, value))


def mae(label: Array, value: Floats) -> float:
    """Mean absolute error a column, averaged over the columns that have labels; (n, T) each."""
    return _mean(np.mean(np.abs(truth - guess)) for truth, guess in _labelled_columns(label, value))


def r2(label: Array, value: Floats) -> float:
    """1 - sum (y - f)^2 / sum (y - mean of y)^2 a column, averaged over the columns whose labels differ; (n, T) each.

    NaN if no column has two labels that differ.
    """
    columns = [(truth, guess, np.sum((truth - truth.mean()) ** 2)) for truth, guess in _labelled_columns(label, value)]
    return _mean(1 - np.sum((truth - guess) ** 2) / spread for truth, guess, spread in columns if spread > 0)


def _labelled_columns(label: Array, value: Floats) -> Iterator[tuple[Floats, Floats]]:
    """Yield labels, float64, and values of the labelled rows of each column that has any."""
    for truth, guess in zip(label.T, value.T, strict=True):
        labelled = ~np.isnan(truth)
        if labelled.any():
            yield truth[labelled].astype(np.float64), guess[labelled]


def _mean(values: Iterable[Any]) -> float:
    numbers = list(values)
    return float(np.mean(numbers)) if numbers else float("nan")


def ranks(positive: Floats, negative: Floats) -> Floats:
    """Rank of each positive score (n,) among its negatives, from 1: whole or half numbers (n,).

    `negative`: (m,), one pool for all; or (n, K), row i of positive i. Ties have the mean of the first and the last of
    their equals, as in OGB's MRR: a model that scores everything alike gets the middle rank.
    """
    if negative.ndim == 1:
        ordered = np.sort(negative)
        higher = len(ordered) - np.searchsorted(ordered, positive, side="right")
        not_lower = len(ordered) - np.searchsorted(ordered, positive, side="left")
        return 0.5 * (higher + not_lower) + 1
    result = np.empty(len(positive))
    for rows in blocks(len(positive), _ROWS_AT_A_TIME):
        higher = (negative[rows] > positive[rows, None]).sum(axis=1)
        not_lower = (negative[rows] >= positive[rows, None]).sum(axis=1)
        result[rows] = 0.5 * (higher + not_lower) + 1
    return result


def names_with_mrr(*, of_triples: bool) -> Sequence[str]:
    """Return the names of what `mrr` (of links) and `mrr_of_triples` return."""
    of_ties = ("mean_rank", "mrr_optimistic", "mrr_pessimistic") if of_triples else ()
    return ("mrr", "hits@1", "hits@3", "hits@10", *of_ties)


def mrr(positive: Floats, negative: Floats) -> dict[str, float]:
    """Return the mean of 1 / rank, and the shares of ranks up to 1, 3 and 10; arguments as of `ranks`."""
    rank = ranks(positive, negative)
    return {"mrr": float(np.mean(1 / rank)), **{f"hits@{k}": float(np.mean(rank <= k)) for k in (1, 3, 10)}}


def hits(positive: Floats, negative: Floats, k: int) -> float:
    """Share of positive edges that rank among the first k.

    With a pool (m,) as OGB's Hits@K: a positive hits if it scores strictly above the k-th best negative (a tie is a
    miss), and everything hits if there are fewer than k negatives. With (n, K) as OGB does beside its MRR: the mean of
    optimistic and pessimistic rank is at most k.
    """
    if len(positive) == 0:
        return float("nan")
    if negative.ndim == 2:
        return float(np.mean(ranks(positive, negative) <= k))
    if len(negative) < k:
        return 1.0
    threshold = np.partition(negative, len(negative) - k)[len(negative) - k]
    return float(np.mean(positive > threshold))


def mrr_of_triples(ranks: TripleRanks) -> dict[str, float]:
    """Return `mrr` of true entities' ranks, the mean rank, and the MRR with each tie won, and with each tie lost.

    MRR, Hits@K and mean rank go by the mean of optimistic and pessimistic rank, as PyKEEN ("realistic") and LibKGE do.
    """
    mean = ranks.mean
    return {
        "mrr": float(np.mean(1 / mean)),
        **{f"hits@{k}": hits_of_triples(ranks, k) for k in (1, 3, 10)},
        "mean_rank": float(np.mean(mean)),
        "mrr_optimistic": float(np.mean(1 / ranks.optimistic)),
        "mrr_pessimistic": float(np.mean(1 / ranks.pessimistic)),
    }


def hits_of_triples(ranks: TripleRanks, k: int) -> float:
    """Share of true entities whose mean of optimistic and pessimistic rank is at most k."""
    return float(np.mean(ranks.mean <= k))


def probabilities(scores: Floats) -> Floats:
    """Softmax of each row, (n, C) float32."""
    shifted = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def sigmoid(score: Floats) -> Floats:
    """Return 1 / (1 + exp(-score)) without overflow."""
    small = np.exp(-np.abs(score))
    return np.where(score >= 0, 1 / (1 + small), small / (1 + small))
