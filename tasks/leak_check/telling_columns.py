"""Columns that tell the label by themselves: most likely the label, or written after it was known."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from configs.label_types import LabelType
from tasks.arrays import Array
from tasks.controls.features import own_columns
from tasks.evaluators.metrics import rocauc
from tasks.sampling.relational.batches import SeedMoments
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.heads import head_views
from tasks.storage.manifests import FeatureColumn

_LEAST_AREA = 0.99
_LEAST_CORRELATION = 0.995
_MOST_ROWS = 100_000
_FEWEST_ROWS = 30


def telling_columns(store: GraphStore, dataset: DatasetStore) -> list[str]:
    """Say of each column of the entities' table whether it alone orders the training labels as they are.

    Also of the columns of rows that an entity names, or that name one entity each, as far as they are older than the
    moment, and whether there is such a row. Of classes each against the rest: the area under the ROC curve, of a
    category's mean label on other rows. Of numbers the correlation.
    """
    manifest = store.manifest
    if manifest.ranking is not None:
        return []  # a column of an entity does not order candidates
    facts = graph_facts(manifest)
    moments = SeedMoments(store, facts)
    seeds = np.asarray(store["train_idx"][:: max(1, len(store["train_idx"]) // _MOST_ROWS)], np.int64)
    entities = np.asarray(store["node_ids"])[moments.entities(seeds)]
    kind = manifest.node_types[facts.seed_type]
    rows = entities - manifest.type_offsets[manifest.node_types.index(kind)]
    label = np.asarray(store["label"][seeds])
    tasks = [(view.label_of(label), view.head.label_type) for view in head_views(manifest)]
    truths = [
        (truth, label_type)
        for label, label_type in tasks or [(label, manifest.label_type)]
        for truth in _targets(label.reshape(len(label), -1).astype(np.float64), label_type)
    ]
    telling = []
    columns = itertools.chain(
        _columns(dataset, f"nodes/{kind}", own_columns(dataset, kind), rows),
        _beside(dataset, kind, rows, moments.cuts(seeds)),
    )
    for column, values, is_category in columns:
        for truth, label_type in truths:
            both = ~np.isnan(truth) & (is_category | ~np.isnan(values))
            if both.sum() < _FEWEST_ROWS or np.ptp(truth[both]) == 0:
                continue
            score = _tells(truth[both], values[both], label_type, is_category=is_category)
            if score is not None:
                what = column if column.startswith("whether ") else f"column {column}"
                telling.append(f"{what} tells the label by itself ({score})")
                break
    return telling


def _columns(
    dataset: DatasetStore, table: str, features: tuple[FeatureColumn, ...], rows: Array
) -> Iterator[tuple[str, Array, bool]]:
    """Yield name, values float64 (n,) and whether they are categories, of each column of some rows; -1: no row."""
    for feature in (one for one in features if one.kind != "text"):
        values = dataset.column(table, feature.column)[rows].reshape(len(rows), -1).astype(np.float64)
        is_category = feature.kind == "categorical"
        values[rows < 0] = -1 if is_category else np.nan
        for number in range(values.shape[1]):
            name = feature.column if values.shape[1] == 1 else f"{feature.column}[{number}]"
            yield name, values[:, number], is_category


def _beside(dataset: DatasetStore, kind: str, rows: Array, cuts: Array | None) -> Iterator[tuple[str, Array, bool]]:
    """Yield the columns of what is one to one with the entities, and of what they name, as `_columns` does."""
    manifest = dataset.manifest
    count = next(one.num_nodes for one in manifest.node_types if one.name == kind)
    nodes = f"nodes/{kind}"
    own_time = dataset.column(nodes, "time") if "time" in dataset.table(nodes).columns else None
    for edge in manifest.edge_types:
        table = f"edges/{edge.name}"
        is_of_task = manifest.target_type != kind and edge.source == manifest.target_type
        if is_of_task or kind not in (edge.source, edge.target):
            continue
        timed = "time" in dataset.table(table).columns
        for own, other, end in (("dst", "src", edge.source), ("src", "dst", edge.target)):
            if (edge.target if own == "dst" else edge.source) != kind:
                continue
            named = dataset.column(table, own)
            if np.bincount(named, minlength=count).max(initial=0) != 1:
                continue
            edge_of = np.full(count, -1, np.int64)
            edge_of[named] = np.arange(len(named))
            seen = edge_of[rows]
            if timed and cuts is not None:
                time = dataset.column(table, "time")[seen]
                there = time < cuts
                if own == "src" and edge.name in manifest.foreign_keys and own_time is not None:
                    there |= time <= own_time[rows]  # a row and its own foreign keys are known together
                seen = np.where((seen >= 0) & there, seen, -1)
            words = f"whether there is a row of {edge.name}"
            yield words, (seen >= 0).astype(np.float64), False
            yield from _columns(dataset, table, edge.features, seen)
            if end != kind:
                ends = np.where(seen >= 0, dataset.column(table, other)[seen], -1)
                yield from _columns(dataset, f"nodes/{end}", own_columns(dataset, end), ends)


def _targets(label: Array, kind: LabelType) -> Iterator[Array]:
    """Yield columns float64 (n,) of labels, NaN where there is none: a class against the others, or as they are."""
    if not kind.one_of_many:
        yield from label.T
        return
    classes = label[:, 0]
    for one in np.unique(classes[classes >= 0]):
        yield np.where(classes >= 0, classes == one, np.nan)


def _tells(truth: Array, values: Array, kind: LabelType, *, is_category: bool) -> str | None:
    """Return how well values tell, where that is too good."""
    if is_category:  # a category's score is the mean label of the rows at even places, measured on the others
        codes = np.unique(values, return_inverse=True)[1]
        count = np.bincount(codes[::2], minlength=codes.max() + 1)
        total = np.bincount(codes[::2], truth[::2], minlength=codes.max() + 1)
        values, truth = np.where(count > 0, total / np.maximum(1, count), truth[::2].mean())[codes[1::2]], truth[1::2]
    if kind.is_number:
        spread = np.std(values) * np.std(truth)
        correlation = abs(float(np.mean((values - values.mean()) * (truth - truth.mean())) / spread)) if spread else 0.0
        return f"correlation {correlation:.4f}" if correlation >= _LEAST_CORRELATION else None
    area = rocauc(truth, values)
    area = max(area, 1 - area)
    return f"rocauc {area:.4f}" if area >= _LEAST_AREA else None
