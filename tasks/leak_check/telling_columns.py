"""Columns that tell the label by themselves: most likely the label, or written after it was known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tasks.arrays import Array
from tasks.evaluators.metrics import rocauc
from tasks.sampling.relational.batches import SeedMoments
from tasks.storage.dataset_store import DatasetStore
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.heads import head_views

_LEAST_AREA = 0.99
_LEAST_CORRELATION = 0.995
_MOST_ROWS = 100_000
_FEWEST_ROWS = 30


def telling_columns(store: GraphStore, dataset: DatasetStore) -> list[str]:
    """Say of each column of the entities' table whether it alone orders the training labels as they are.

    Of classes each against the rest: the area under the ROC curve, of a category's mean label on other rows. Of numbers
    the correlation.
    """
    manifest = store.manifest
    seeds = np.asarray(store["train_idx"][:: max(1, len(store["train_idx"]) // _MOST_ROWS)], np.int64)
    entities = np.asarray(store["node_ids"])[SeedMoments(store, graph_facts(manifest)).entities(seeds)]
    kind = manifest.node_types[graph_facts(manifest).seed_type]
    rows = entities - manifest.type_offsets[manifest.node_types.index(kind)]
    label = np.asarray(store["label"][seeds])
    tasks = [(view.label_of(label), view.head.task_type) for view in head_views(manifest)]
    found = []
    for column, values, is_category in _columns(dataset, kind, rows):
        for truth, task_type in _truths(tasks or [(label, manifest.task_type)]):
            known = ~np.isnan(truth) & (is_category | ~np.isnan(values))
            if known.sum() < _FEWEST_ROWS or np.ptp(truth[known]) == 0:
                continue
            score = _tells(truth[known], values[known], task_type, is_category=is_category)
            if score is not None:
                found.append(f"column {column} tells the label by itself ({score})")
                break
    return found


def _columns(dataset: DatasetStore, kind: str, rows: Array) -> Iterator[tuple[str, Array, bool]]:
    """Yield name, values float64 (n,) and whether they are categories, of each column of the entities."""
    types = {one.name: one for one in dataset.manifest.node_types}
    for feature in types[kind].features:
        values = dataset.column(f"nodes/{kind}", feature.column)[rows].reshape(len(rows), -1)
        for number in range(values.shape[1]):
            name = feature.column if values.shape[1] == 1 else f"{feature.column}[{number}]"
            yield name, values[:, number].astype(np.float64), feature.kind == "categorical"


def _truths(tasks: Sequence[tuple[Array, str]]) -> Iterator[tuple[Array, str]]:
    """Yield what `_targets` does of each task's labels, with its kind."""
    for label, task_type in tasks:
        for truth in _targets(label.reshape(len(label), -1).astype(np.float64), task_type):
            yield truth, task_type


def _targets(label: Array, task_type: str) -> Iterator[Array]:
    """Yield columns float64 (n,) of labels, NaN where there is none: a class against the others, or as they are."""
    if task_type != "multiclass":
        yield from label.T
        return
    classes = label[:, 0]
    for one in np.unique(classes[classes >= 0]):
        yield np.where(classes >= 0, classes == one, np.nan)


def _tells(truth: Array, values: Array, task_type: str, *, is_category: bool) -> str | None:
    """Return how well values tell, where that is too good."""
    if is_category:  # a category's score is the mean label of the rows at even places, measured on the others
        codes = np.unique(values, return_inverse=True)[1]
        count = np.bincount(codes[::2], minlength=codes.max() + 1)
        total = np.bincount(codes[::2], truth[::2], minlength=codes.max() + 1)
        values, truth = np.where(count > 0, total / np.maximum(1, count), truth[::2].mean())[codes[1::2]], truth[1::2]
    if task_type == "regression":
        spread = np.std(values) * np.std(truth)
        correlation = abs(float(np.mean((values - values.mean()) * (truth - truth.mean())) / spread)) if spread else 0.0
        return f"correlation {correlation:.4f}" if correlation >= _LEAST_CORRELATION else None
    area = rocauc(truth, values)
    area = max(area, 1 - area)
    return f"rocauc {area:.4f}" if area >= _LEAST_AREA else None
