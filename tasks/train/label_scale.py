"""The units that a regression's model computes in: mean and standard deviation of each label in the training split."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from models.facts import GraphFacts
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import Array, GraphStore, slices

_CHUNK_ROWS = 1 << 18
_CONSTANT = 1e-7
"""A deviation below this share of the mean is rounding: the label is constant."""


def training_facts(store: GraphStore) -> GraphFacts:
    """Return what a model needs to know of a graph that it is trained on: `graph_facts` and the scale of labels."""
    facts = graph_facts(store.manifest)
    if store.manifest.task_type != "regression":
        return facts
    labels = store["label" if store.manifest.task == "node" else "graph_label"]
    mean, scale = label_scale(labels, np.asarray(store["train_idx"]))
    return replace(facts, label_mean=tuple(mean.tolist()), label_scale=tuple(scale.tolist()))


def label_scale(labels: Array, rows: Array) -> tuple[Array, Array]:
    """Return mean and standard deviation of the labels of some rows, float64 (T,) each, by column.

    `labels`, float (N, T), may be a memory map; NaN is no label. A constant label has the scale 1, one that no row has
    the mean 0 besides.
    """
    width = labels.shape[1]
    count, total, squares = np.zeros(width, np.int64), np.zeros(width), np.zeros(width)
    for values, known in _parts(labels, rows):
        count += known.sum(0)
        total += np.where(known, values, 0).sum(0)
    mean = total / np.maximum(count, 1)
    for values, known in _parts(labels, rows):
        squares += np.square(np.where(known, values - mean, 0)).sum(0)
    deviation = np.sqrt(squares / np.maximum(count, 1))
    return mean, np.where(deviation > _CONSTANT * np.abs(mean), deviation, 1.0)


def _parts(labels: Array, rows: Array) -> Iterator[tuple[Array, Array]]:
    """Yield some rows at a time, float64 (n, T), and which of them exist."""
    for part in slices(len(rows), _CHUNK_ROWS):
        values = labels[rows[part]].astype(np.float64)
        yield values, ~np.isnan(values)
