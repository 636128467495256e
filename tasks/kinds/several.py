"""Several tasks of the same nodes, which share a model; the first one judges it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from configs.errors import DataError
from configs.label_types import LabelType
from configs.registry import EVALUATORS
from tasks.arrays import Array
from tasks.evaluators.evaluators import Evaluator, single_evaluator
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import HeadEvaluator, of_head
from tasks.kinds.base import Columns, Kind, Names, Warn
from tasks.kinds.judged import Deciding, as_probabilities
from tasks.kinds.labelled import SECONDARY
from tasks.kinds.node import NodeKind
from tasks.storage.graph_store import GraphStore
from tasks.storage.heads import head_manifest, head_views
from tasks.storage.manifests import GraphManifest

if TYPE_CHECKING:
    from tasks.controls.features import ControlledGraph
    from tasks.controls.suite import Controls
    from tasks.inference.opened import Opened


class SeveralKind(NodeKind):
    """Labels and scores of all tasks stand side by side."""

    def judging(self, manifest: GraphManifest, prediction: Prediction) -> Prediction:
        """Return what is said of the first task."""
        return next(self.decided(manifest, prediction))[2]

    def decided(self, manifest: GraphManifest, prediction: Prediction) -> Iterator[tuple[str, LabelType, Prediction]]:
        """Yield each task by its name."""
        for view in head_views(manifest):
            yield view.head.name, view.head.label_type, of_head(prediction, view)

    def judged(self, opened: Opened, label: Array, scores: Array, deciding: Deciding) -> Columns:
        """Return each task's columns under its name."""
        columns: Columns = {}
        for view in head_views(opened.store.manifest):
            own = Deciding().judged(view.head.label_type, view.label_of(label), scores[:, view.scores])
            columns |= {f"{view.head.name}_{column}": values for column, values in own.items()}
        return columns

    def as_probabilities(self, manifest: GraphManifest, scores: Array) -> Array:
        """Return those of all tasks side by side."""
        parts = [as_probabilities(view.head.label_type, scores[:, view.scores]) for view in head_views(manifest)]
        return np.concatenate([part.reshape(len(scores), -1) for part in parts], axis=1)

    def controls(self, graph: ControlledGraph, num_scores: int) -> Controls:
        """Fit those of each task."""
        from tasks.controls.labels import SeveralControls

        return SeveralControls(graph)

    def secondary(self, manifest: GraphManifest) -> list[Evaluator]:
        """Return those of each task."""
        return [
            HeadEvaluator(EVALUATORS.config(dict(config)), manifest, view)
            for view in head_views(manifest)
            for config in SECONDARY[view.head.label_type.name]
        ]

    def measurable(
        self, evaluator: Evaluator, graph: GraphStore, names: Names, splits: Sequence[str], warn: Warn
    ) -> None:
        """Look at each task's labels; only the first one's metric must be defined."""
        from tasks.kinds.measurable import check_labels_of, split_labels

        labels = split_labels(graph, graph[graph.manifest.split_rows.labels])
        for number, view in enumerate(head_views(graph.manifest)):
            labels_of, manifest = {s: view.label_of(label) for s, label in labels.items()}, graph.manifest
            of_task = head_manifest(manifest, view.head)

            def warn_of_task(words: str, name: str = view.head.name) -> None:
                warn(f"{name}: {words}")

            try:
                check_labels_of(single_evaluator(evaluator.config, of_task), of_task, labels_of, splits, warn_of_task)
            except DataError as error:
                if not number:
                    raise
                warn_of_task(str(error))

    said_of_points = Kind.said_of_points  # a map shows one task


KIND = SeveralKind()
