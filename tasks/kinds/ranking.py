"""Rows for each of which all candidates are ranked: recommendations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from configs.label_types import LabelType
from tasks.arrays import Array, blocks
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.prediction import Prediction
from tasks.kinds.base import ROWS_AT_A_TIME, Columns, Kind, TaskRows
from tasks.kinds.diagnosis.lists import list_length
from tasks.kinds.judged import Deciding, split_column, values_column
from tasks.kinds.node import NodeKind
from tasks.storage.graph_store import GraphStore
from tasks.storage.manifests import GraphManifest

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.controls.features import ControlledGraph
    from tasks.controls.suite import Controls
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor

_PLACES_AT_A_TIME = 1 << 17


class RankingKind(NodeKind):
    """Rows are nodes at moments, whose label says which candidates are right."""

    words = "recommendations"

    def score(self, predictor: Predictor, model: GraphModel, rows: TaskRows, metric: str = "") -> Prediction:
        """Rank all candidates for each row; with `metric` lists are returned too, as long as it looks at them."""
        return Prediction(ranked=predictor.ranked(model, rows.items, list_length(metric) if metric else None))

    def score_all(
        self, predictor: Predictor, model: GraphModel, parts: Sequence[TaskRows], metric: str = ""
    ) -> Iterator[Prediction]:
        """Score one part after the other."""
        for rows in parts:
            yield self.score(predictor, model, rows, metric)

    def score_parts(self, predictor: Any, model: GraphModel, split: str) -> Prediction:
        """Refuse: candidates lie on all ranks."""
        raise AssertionError("rankings are refused where a graph lies in parts")

    def count(self, prediction: Prediction) -> int:
        """Return how many rows have a list."""
        assert prediction.ranked is not None
        assert prediction.ranked.lists is not None
        return len(prediction.ranked.lists.candidates)

    def decided(self, manifest: GraphManifest, prediction: Prediction) -> Iterator[tuple[str, LabelType, Prediction]]:
        """Nothing is decided of lists."""
        return iter(())

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

    def probabilities(self, opened: Opened, rows: TaskRows, deciding: Deciding) -> Iterator[tuple[Columns, Array]]:
        """Refuse: there is no matrix of lists."""
        return Kind.probabilities(self, opened, rows, deciding)

    def controls(self, graph: ControlledGraph, num_scores: int) -> Controls:
        """Rank by simple rules."""
        from tasks.controls.recommendation import RecommendationControls

        return RecommendationControls(graph.store)

    def secondary(self, manifest: GraphManifest) -> list[Evaluator]:
        """The evaluator of lists has them all."""
        return []

    def measurable(self, *_: Any) -> None:
        """Every row of a split has something that is right."""

    def diagnose(self, opened: Opened, split: str, prediction: Prediction) -> dict[str, Any]:
        """Return what lists of other lengths are worth, and how many candidates they name."""
        from tasks.kinds.diagnosis.lists import diagnose_ranked, recommended
        from tasks.sampling.relational.links import ranked_links

        assert prediction.ranked is not None
        assert prediction.ranked.lists is not None
        covered = recommended(prediction.ranked.lists, len(ranked_links(opened.store).candidates))
        return {"ranked": diagnose_ranked(prediction.ranked) | covered}

    def labels(self, store: GraphStore) -> None:
        """A label is how many candidates are right."""

    def said_of_points(self, opened: Opened, items: Array) -> None:
        """A map has no room for lists."""


KIND = RankingKind()
