"""Sources of a link task, for each of which all targets are ranked."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tasks.arrays import Array, blocks
from tasks.evaluators.prediction import Prediction
from tasks.kinds.base import ROWS_AT_A_TIME, Columns, Kind, TaskRows
from tasks.kinds.judged import Deciding
from tasks.kinds.link import PairKind, training_edges
from tasks.kinds.ranking import RankingKind, diagnose_ranked, list_length, recommended
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_store import GraphStore
from tasks.storage.ids import IdMap

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.controls.features import ControlledGraph
    from tasks.controls.suite import Controls
    from tasks.inference.opened import Opened
    from tasks.inference.predictor import Predictor


class RecommendationKind(RankingKind):
    """Rows are the sources of a split's edges, whose targets are right; those of other splits are no candidates."""

    lists_for_nodes = True
    groups_lists = True
    keeps_layers = False  # a matrix product's bits follow from all its rows

    def rows(self, predictor: Predictor, split: str) -> TaskRows:
        """Return the sources of a split's edges, ascending."""
        return TaskRows(np.unique(np.asarray(predictor.split_array(f"{split}_edges")[:, 0], np.int64)), split)

    rest = Kind.rest
    asked_rows = Kind.asked_rows
    id_tables = Kind.id_tables

    def score(self, predictor: Predictor, model: GraphModel, rows: TaskRows, metric: str = "") -> Prediction:
        """Rank all targets for each source."""
        from tasks.inference.ranked_targets import ranked_targets

        length = rows.most or (list_length(metric) if metric else None)
        return Prediction(ranked=ranked_targets(predictor, model, rows.items, rows.split, length))

    def answers(self, opened: Opened, rows: TaskRows, deciding: Deciding) -> Iterator[Columns]:
        """List the best targets that a source is not joined to in any split."""
        for part in blocks(len(rows.items), ROWS_AT_A_TIME):
            some = replace(rows, items=rows.items[part])
            prediction = self.score(opened.predictor, opened.model, some, opened.store.manifest.metric)
            yield from self.columns(opened, some, prediction, deciding)

    def controls(self, graph: ControlledGraph, num_scores: int) -> Controls:
        """Rank by what is popular, and by what is joined to the same sources."""
        from tasks.controls.ranked.targets import TargetControls

        return TargetControls(graph.store)

    def diagnose(self, opened: Opened, split: str, prediction: Prediction) -> dict[str, Any]:
        """Return what lists of other lengths are worth, and how many targets they name."""
        from tasks.inference.ranked_targets import TargetLinks

        assert prediction.ranked is not None
        assert prediction.ranked.lists is not None
        covered = recommended(prediction.ranked.lists, TargetLinks(opened.store, split).num_candidates)
        return {"ranked": diagnose_ranked(prediction.ranked) | covered}

    def grouped_by(
        self, store: GraphStore, dataset: DatasetStore, ids: IdMap, items: Array, names: Collection[str]
    ) -> Columns:
        """Return how many training edges each source has."""
        return {"training edges of the source": training_edges(store, items, 0)} if "degree" in names else {}

    def row_hashes(
        self, store: GraphStore, dataset: DatasetStore, split: str, *, directed: bool, reverse: bool = False
    ) -> Array:
        """Return hashes of the training pairs; of other splits that of each source's first pair."""
        hashes = PairKind().row_hashes(store, dataset, split, directed=directed, reverse=reverse)
        first = np.unique(np.asarray(store[f"{split}_edges"][:, 0]), return_index=True)[1]
        return hashes if split == "train" else hashes[first]


KIND = RecommendationKind()
