"""Controls of edges that have labels: the best constant, and what sees both ends and the edge without the graph."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from models.kernels.threads import num_threads
from tasks.arrays import Array, sample_rows
from tasks.controls import boosting, linear
from tasks.controls.features import ControlledGraph, OwnFeatures, labelled, training_sample
from tasks.controls.labels import LabelControls
from tasks.controls.suite import FittedControl
from tasks.evaluators.prediction import Prediction
from tasks.storage.controls import BOTH_ENDS_CONTROL, FEATURES_CONTROL
from tasks.storage.graph_store import slices
from tasks.storage.manifests import FeatureColumn

_NUMBERS_AT_A_TIME = 1 << 23
_MOST_ROWS = 100_000
"""Of each split that trees are fitted to, or end by."""


class EdgeFeatures:
    """The features of edges: those of both ends, and their own, side by side."""

    def __init__(self, graph: ControlledGraph) -> None:
        """Read them; mapped from files in the graph's scratch folder."""
        store, manifest, kind = graph.store, graph.store.manifest, graph.dataset.manifest.labelled_edges
        self.graph, self._ends, names = graph, store["edge_ends"], manifest.node_types
        self._first = [manifest.type_offsets[names.index(one)] for one in (kind.source, kind.target)]
        own, count = [store.get("scored_feat"), store.get("scored_feat_cat")], len(self._ends)
        numbers, codes = (np.empty((count, 0), np.float32) if one is None else one for one in own)
        widths: list[tuple[Literal["numeric", "categorical"], int]] = [
            ("numeric", numbers.shape[1]),
            ("categorical", codes.shape[1]),
        ]
        of_edges = tuple(FeatureColumn(column=name, kind=name, dim=width) for name, width in widths if width)
        columns = [graph.columns(kind.source), graph.columns(kind.target), of_edges]
        self.columns: tuple[FeatureColumn, ...] = columns[0] + columns[1] + columns[2]
        nodes = {name: self._read(name, some) for name, some in zip((kind.source, kind.target), columns, strict=False)}
        edges = OwnFeatures(numbers, codes) if of_edges else None
        self._parts = [nodes[kind.source], nodes[kind.target], edges]

    def _read(self, kind: str, columns: tuple[FeatureColumn, ...]) -> OwnFeatures | None:
        if not columns:
            return None
        folder, rows = (
            Path(tempfile.mkdtemp(dir=self.graph.scratch)),
            self.graph.dataset.table(f"nodes/{kind}").num_rows,
        )
        return OwnFeatures(*self.graph.read(kind, columns, np.arange(rows), folder))

    def _places(self, edges: Array) -> list[Array]:
        """Return where both ends stand in their tables, and the edges among those that are scored."""
        ends = self.graph.ids.dense(np.asarray(self._ends[edges]).reshape(-1)).reshape(-1, 2)
        return [ends[:, 0] - self._first[0], ends[:, 1] - self._first[1], edges]

    def fit(self, edges: Array) -> None:
        """Choose codes and units by some edges of the training split."""
        places = self._places(edges)
        for features in {id(part): part for part in self._parts if part is not None}.values():
            own = [some for some, part in zip(places, self._parts, strict=True) if part is features]
            features.fit(np.unique(np.concatenate(own)))

    def __call__(self, edges: Array) -> Array:
        """Return the features of some edges, float32 (n, D)."""
        parts = []
        for features, places in zip(self._parts, self._places(edges), strict=True):
            if features is not None:
                parts.append(np.concatenate([x for _, x in features.parts(places)]))
        return np.concatenate(parts, axis=1)

    def with_codes(self, edges: Array) -> tuple[Array, list[int]]:
        """Return the features, categories as their codes, float32 (n, D), and which columns are categories."""
        parts, categories, first = [], list[int](), 0
        for features, places in zip(self._parts, self._places(edges), strict=True):
            if features is not None:
                x, numbers = features.with_codes(places)
                categories += range(first + numbers, first + x.shape[1])
                first += x.shape[1]
                parts.append(x)
        return np.concatenate(parts, axis=1), categories

    @property
    def width(self) -> int:
        """Columns."""
        return sum(part.width for part in self._parts if part is not None)


@dataclass(frozen=True)
class EdgeControl:
    """What was fitted to the features of training edges."""

    features: EdgeFeatures
    model: linear.LinearModel | boosting.BoostedColumns

    def predict(self, split: str, prediction: Prediction) -> Prediction:
        """Score a split's edges."""
        edges = np.asarray(self.features.graph.store[f"{split}_idx"], np.int64)
        step = max(1, _NUMBERS_AT_A_TIME // max(1, self.features.width))
        trees, scores = isinstance(self.model, boosting.BoostedColumns), []
        for part in slices(len(edges), step):
            some = edges[part]
            scores.append(self.model(self.features.with_codes(some)[0] if trees else self.features(some)))
        return Prediction(scores=np.concatenate(scores), label=prediction.label)

    def state(self) -> tuple[dict[str, Array], list[str]]:
        """Return nothing: such a control is not served."""
        return {}, []


class EdgeControls(LabelControls):
    """Those of edges with labels."""

    def __init__(self, graph: ControlledGraph, num_scores: int) -> None:
        """Fit them; `num_scores`: columns of the model's scores."""
        super().__init__(graph, num_scores, graph.store["edge_label"])

    def fitted(self, graph: ControlledGraph, num_scores: int, labels: Array) -> dict[str, FittedControl]:
        """Return a linear model and trees on what both ends and the edges carry."""
        features, manifest = EdgeFeatures(graph), graph.store.manifest
        if not features.columns:
            self.notes.append("neither the edges nor their ends have features: nothing is known without the graph")
            return {}
        train = labelled(np.asarray(graph.store["train_idx"], np.int64), labels)
        sample = training_sample(train, features.columns, num_scores)
        features.fit(sample)
        label = np.asarray(labels[sample])
        model = linear.fit(features(sample), label, manifest.label_type, num_scores)
        samples, categories = [], list[int]()
        for split in ("train", "valid"):
            rows = sample_rows(np.asarray(graph.store[f"{split}_idx"], np.int64), _MOST_ROWS)
            x, categories = features.with_codes(rows)
            samples.append(boosting.LabelledRows(x, np.asarray(labels[rows])))
        goal = boosting.Goal(manifest.label_type, num_scores, manifest.metric, num_threads())
        trees = boosting.fit_columns(samples[0], samples[1], categories, goal)
        return {FEATURES_CONTROL: EdgeControl(features, model), BOTH_ENDS_CONTROL: EdgeControl(features, trees)}
