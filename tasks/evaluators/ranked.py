"""Metrics of ranked lists: each row has a list of candidates, of which some are right.

All are means over rows. r_1 < r_2 < ... are the places of what is right in a row's list, from 1, n how many that are:

| metric | of a row |
|---|---|
| mrr | 1 / r_1 |
| hits@K | 1 where r_1 <= K |
| recall@K | share of what is right that has a place up to K |
| precision@K | what is right among the first K places, over K |
| map@K | sum over r_k <= K of k / r_k, over min(n, K) |
| ndcg@K | sum over r_k <= K of 1 / log2(1 + r_k), over what that is where r_k = k for all |

Candidates of one score take the mean of their places, as with triples: a model that scores all alike gets the middle of
the list, not its top.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from configs.base import ComponentConfig
from configs.errors import DataError
from configs.metric_names import RANKING_METRICS
from configs.registry import EVALUATORS
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.ranked_rows import RankedRows
from tasks.storage.manifests import GraphManifest

Floats = NDArray[np.floating]


def reciprocal(rows: RankedRows) -> Floats:
    """Return 1 / place of the best of what is right, (n,)."""
    return 1 / rows.places[:, 0]


def hits(rows: RankedRows, k: int) -> Floats:
    """Return 1 where something right is among the first k, (n,)."""
    return (rows.places[:, 0] <= k).astype(np.float64)


def recall(rows: RankedRows, k: int) -> Floats:
    """Return the share of what is right that is among the first k, (n,)."""
    return (rows.places <= k).sum(1) / rows.counts


def precision(rows: RankedRows, k: int) -> Floats:
    """Return the share of the first k that is right, (n,)."""
    return (rows.places <= k).sum(1) / k


def average_precision(rows: RankedRows, k: int) -> Floats:
    """Return the average precision of the first k, (n,)."""
    number = np.arange(1, rows.places.shape[1] + 1)
    gained = np.where(rows.places <= k, number / rows.places, 0.0).sum(1)
    return gained / np.minimum(rows.counts, k)


def ndcg(rows: RankedRows, k: int) -> Floats:
    """Return the discounted gain of the first k over the best possible, (n,)."""
    gained = np.where(rows.places <= k, 1 / np.log2(1 + np.maximum(rows.places, 1)), 0.0).sum(1)
    best = np.cumsum(1 / np.log2(1 + np.arange(1, k + 1)))
    return gained / best[np.minimum(rows.counts, k) - 1]


_MEASURES: dict[str, Callable[[RankedRows, int], Floats]] = {
    "map": average_precision,
    "ndcg": ndcg,
    "recall": recall,
    "precision": precision,
    "hits": hits,
}
assert tuple(_MEASURES) == RANKING_METRICS


def measure_ranked(rows: RankedRows, k: int) -> dict[str, float]:
    """Return all metrics at k, and the MRR."""
    measured = {f"{name}@{k}": float(measure(rows, k).mean()) for name, measure in _MEASURES.items()}
    return measured | {"mrr": float(reciprocal(rows).mean())}


@EVALUATORS.register("ranking")
class Ranking(Evaluator):
    """Recommendations: MAP, nDCG, recall, precision and hits of the first K of each row's list, and MRR."""

    task_types = frozenset({"ranking", "link"})

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        super().__init__(config, graph)
        self.metric = "mrr" if self.config.metric == "mrr" else f"{self.config.metric}@{self.config.k}"

    @property
    def names(self) -> Sequence[str]:
        """Names of all that it measures."""
        return (*(f"{name}@{self.config.k}" for name in RANKING_METRICS), "mrr")

    def __call__(self, prediction: Prediction) -> dict[str, float]:
        """All of them; the one that judges comes first. Raises DataError: there is no row."""
        if prediction.ranked is None or not len(prediction.ranked):
            raise DataError("the split has no row to which something is right; there is nothing to rank")
        measured = measure_ranked(prediction.ranked, self.config.k)
        return {self.metric: measured.pop(self.metric), **measured}
