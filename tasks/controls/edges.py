"""Controls of edges that have labels: the best constant, and what sees both ends and the edge without the graph."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from models.kernels.threads import num_threads
from tasks.arrays import Array, blocks, sample_rows
from tasks.controls import boosting, linear
from tasks.controls.features import ControlledGraph, OwnFeatures, labelled, training_sample
from tasks.controls.labels import LabelControls
from tasks.controls.suite import FittedControl
from tasks.storage.controls import BOTH_ENDS_CONTROL, FEATURES_CONTROL
from tasks.storage.graph_store import GraphStore
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
        widths: dict[Literal["numeric", "categorical"], int] = {
            "numeric": numbers.shape[1],
            "categorical": codes.shape[1],
        }
        of_edges = tuple(FeatureColumn(column=name, kind=name, dim=width) for name, width in widths.items() if width)
        of_nodes = {name: graph.columns(name) for name in (kind.source, kind.target)}
        self.columns = (*of_nodes[kind.source], *of_nodes[kind.target], *of_edges)
        nodes = {name: self._read(name, columns) for name, columns in of_nodes.items() if columns}
        edges = OwnFeatures(numbers, codes) if of_edges else None
        self._features = [nodes.get(kind.source), nodes.get(kind.target), edges]

    def _read(self, kind: str, columns: tuple[FeatureColumn, ...]) -> OwnFeatures:
        folder = Path(tempfile.mkdtemp(dir=self.graph.scratch))
        rows = np.arange(self.graph.dataset.table(f"nodes/{kind}").num_rows)
        return OwnFeatures(*self.graph.read(kind, columns, rows, folder))

    def _parts(self, edges: Array) -> list[tuple[OwnFeatures, Array]]:
        """Return what both ends and the edges carry, where they do, and the places of some edges in it."""
        ends = self.graph.ids.dense(np.asarray(self._ends[edges]).reshape(-1)).reshape(-1, 2) - self._first
        parts = zip(self._features, (*ends.T, edges), strict=True)
        return [(features, places) for features, places in parts if features is not None]

    def fit(self, edges: Array) -> None:
        """Choose codes and units by some edges of the training split."""
        parts = self._parts(edges)
        for features in {id(one): one for one, _ in parts}.values():  # both ends may be of one type
            features.fit(np.unique(np.concatenate([places for one, places in parts if one is features])))

    def standardized(self, edges: Array) -> Array:
        """Return the features of some edges as a linear model reads them, float32 (n, D)."""
        return np.concatenate([features.whole(places) for features, places in self._parts(edges)], axis=1)

    def with_codes(self, edges: Array) -> tuple[Array, list[int]]:
        """Return the features, categories as their codes, float32 (n, D), and which columns are categories."""
        tables, categories, first = [], list[int](), 0
        for features, places in self._parts(edges):
            x, numbers = features.with_codes(places)
            categories += range(first + numbers, first + x.shape[1])
            first += x.shape[1]
            tables.append(x)
        return np.concatenate(tables, axis=1), categories

    @property
    def width(self) -> int:
        """Columns of what a linear model reads."""
        return sum(features.width for features in self._features if features is not None)


@dataclass(frozen=True)
class EdgeControl(FittedControl):
    """What was fitted to the features of training edges."""

    store: GraphStore
    features: EdgeFeatures
    model: linear.LinearModel | boosting.BoostedColumns

    def scores(self, rows: Array) -> Array:
        """Score edges, some at a time."""
        reads_codes = isinstance(self.model, boosting.BoostedColumns)
        parts = [rows[part] for part in blocks(len(rows), max(1, _NUMBERS_AT_A_TIME // max(1, self.features.width)))]
        read = (
            self.features.with_codes(part)[0] if reads_codes else self.features.standardized(part) for part in parts
        )
        return np.concatenate([self.model(x) for x in read])


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
        model = linear.fit(features.standardized(sample), label, manifest.label_type, num_scores)
        samples, categories = [], list[int]()
        for split in ("train", "valid"):
            rows = sample_rows(np.asarray(graph.store[f"{split}_idx"], np.int64), _MOST_ROWS)
            x, categories = features.with_codes(rows)
            samples.append(boosting.LabelledRows(x, np.asarray(labels[rows])))
        goal = boosting.Goal(manifest.label_type, num_scores, manifest.metric, num_threads())
        trees = boosting.fit_columns(samples[0], samples[1], categories, goal)
        return {
            FEATURES_CONTROL: EdgeControl(graph.store, features, model),
            BOTH_ENDS_CONTROL: EdgeControl(graph.store, features, trees),
        }
