"""Rows for each of which all candidates are ranked: recommendations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tasks.arrays import blocks
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.ranked import hits, precision, recall
from tasks.evaluators.ranked_rows import Lists, RankedRows
from tasks.kinds.base import ROWS_AT_A_TIME, Columns, Kind, TaskRows
from tasks.kinds.judged import Deciding, split_column, values_column
from tasks.kinds.node import NodeKind

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.controls.features import ControlledGraph
    from tasks.controls.suite import Controls
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor


_LENGTHS = (1, 3, 5, 10, 20, 50, 100)


def list_length(metric: str) -> int:
    """Return how many places of each list are written: K of the metric that judges, 10 of MRR."""
    _, _, k = metric.partition("@")
    return int(k) if k else 10


def diagnose_ranked(rows: RankedRows) -> dict[str, Any]:
    """Return `lengths`: recall, precision and hits by how long the lists are; where the best right one is; how many."""
    measures = {"recall": recall, "precision": precision, "hits": hits}
    return {
        "lengths": [
            {"k": k} | {name: float(measure(rows, k).mean()) for name, measure in measures.items()} for k in _LENGTHS
        ],
        "median_place": float(np.median(rows.places[:, 0])),
        "right": float(rows.counts.mean()),
    }


def recommended(lists: Lists, num_candidates: int) -> dict[str, Any]:
    """Return how many candidates stand in some list, and the share of all places that the 10 most frequent have."""
    candidates, counts = np.unique(lists.candidates[lists.candidates >= 0], return_counts=True)
    most = np.sort(counts)[::-1][:10].sum() / max(1, counts.sum())
    return {"recommended": len(candidates), "candidates": num_candidates, "share_of_ten": float(most)}


_PLACES_AT_A_TIME = 1 << 17


class RankingKind(NodeKind):
    """Rows are nodes at moments, whose label says which candidates are right."""

    words = "recommendations"
    explained_by = ""

    def score(self, predictor: Predictor, model: GraphModel, rows: TaskRows, metric: str = "") -> Prediction:
        """Rank all candidates for each row; with `metric` lists are returned too, as long as it looks at them."""
        return Prediction(ranked=predictor.ranked(model, rows.items, list_length(metric) if metric else None))

    score_all = Kind.score_all  # one part after the other

    score_parts = Kind.score_parts  # candidates lie on all ranks

    def count(self, prediction: Prediction) -> int:
        """Return how many rows have a list."""
        assert prediction.ranked is not None
        assert prediction.ranked.lists is not None
        return len(prediction.ranked.lists.candidates)

    decided = Kind.decided  # nothing is decided of lists

    def columns(self, opened: Opened, rows: TaskRows, prediction: Prediction, deciding: Deciding) -> Iterator[Columns]:
        """Yield a row for each place of a list."""
        assert prediction.ranked is not None
        lists, ids = prediction.ranked.lists, opened.ids.columns(rows.items)
        assert lists is not None
        for part in blocks(len(lists.candidates), max(1, _PLACES_AT_A_TIME // max(1, lists.candidates.shape[1]))):
            candidates = lists.candidates[part]
            row, place = np.nonzero(candidates >= 0)
            taken, right = pa.array(row + part.start), lists.right[part][row, place]
            split = rows.split[row + part.start] if isinstance(rows.split, np.ndarray) else rows.split
            yield {name: column.take(taken) for name, column in ids.items()} | {
                "split": split_column(split, slice(None), len(row)),
                "place": pa.array(place + 1, pa.int32()),
                "prediction": opened.ids.lookup(candidates[row, place]),
                "score": pa.array(lists.scores[part][row, place], pa.float32()),
                "label": values_column(right[:, None], pa.int8()),
            }

    def answers(self, opened: Opened, rows: TaskRows, deciding: Deciding) -> Iterator[Columns]:
        """Rank candidates for some rows at a time."""
        for part in blocks(len(rows.items), ROWS_AT_A_TIME):
            some = TaskRows(rows.items[part], rows.split if rows.split is None else rows.split[part])
            prediction = self.score(opened.predictor, opened.model, some, opened.store.manifest.metric)
            yield from self.columns(opened, some, prediction, deciding)

    probabilities = Kind.probabilities  # there is no matrix of lists

    def controls(self, graph: ControlledGraph, num_scores: int) -> Controls:
        """Rank by simple rules."""
        from tasks.controls.ranked.recommendation import RecommendationControls

        return RecommendationControls(graph.store)

    secondary = Kind.secondary  # the evaluator of lists has them all

    measurable = Kind.measurable  # every row of a split has something that is right

    def diagnose(self, opened: Opened, split: str, prediction: Prediction) -> dict[str, Any]:
        """Return what lists of other lengths are worth, and how many candidates they name."""
        from tasks.sampling.relational.links import ranked_links

        assert prediction.ranked is not None
        assert prediction.ranked.lists is not None
        covered = recommended(prediction.ranked.lists, len(ranked_links(opened.store).candidates))
        return {"ranked": diagnose_ranked(prediction.ranked) | covered}

    labels = Kind.labels  # a label is how many candidates are right

    said_of_points = Kind.said_of_points  # a map has no room for lists


KIND = RankingKind()
