"""The units that a regression's model computes in: mean and standard deviation of each label in the training split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from models.facts import GraphFacts
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import Array, GraphStore, slices
from tasks.storage.heads import HeadView, head_views
from tasks.train.ranks.collectives import sum_over_ranks

_CHUNK_ROWS = 1 << 18
_CONSTANT = 1e-7
"""A deviation below this share of the mean is rounding: the label is constant."""


def training_facts(store: GraphStore, *, over_ranks: bool = False) -> GraphFacts:
    """Return what a model needs to know of a graph that it is trained on: `graph_facts` and the scale of labels.

    `over_ranks`: each rank holds a part of the graph, and all of them call this together.
    """
    facts = graph_facts(store.manifest)
    heads = head_views(store.manifest)
    if store.manifest.task_type != "regression" and not any(view.head.task_type == "regression" for view in heads):
        return facts
    labels = store["label" if store.manifest.task == "node" else "graph_label"]
    mean, scale = label_scale(labels, store.training_rows(), over_ranks=over_ranks)
    if heads:
        mean, scale = _by_score(heads, mean, scale)
    return replace(facts, label_mean=tuple(mean.tolist()), label_scale=tuple(scale.tolist()))


def _by_score(heads: Sequence[HeadView], mean: Array, scale: Array) -> tuple[Array, Array]:
    """Return mean and scale of each score of several tasks, of those of all labels: 0 and 1 but of regressions."""
    means, scales = np.zeros(heads[-1].scores.stop), np.ones(heads[-1].scores.stop)
    for view in heads:
        if view.head.task_type == "regression":
            means[view.scores], scales[view.scores] = mean[view.labels], scale[view.labels]
    return means, scales


def label_scale(labels: Array, rows: Array, *, over_ranks: bool = False) -> tuple[Array, Array]:
    """Return mean and standard deviation of the labels of some rows, float64 (T,) each, by column.

    `labels`, float (N, T), may be a memory map; NaN is no label. A constant label has the scale 1, one that no row has
    the mean 0 besides. `over_ranks`: see `column_moments`.
    """
    pieces = list(slices(max(1, len(rows)), _CHUNK_ROWS))
    mean, deviation = column_moments(lambda: (labels[rows[part]] for part in pieces), over_ranks=over_ranks)
    return mean, np.where(deviation > _CONSTANT * np.abs(mean), deviation, 1.0)


def column_moments(parts: Callable[[], Iterable[Array]], *, over_ranks: bool = False) -> tuple[Array, Array]:
    """Return mean and standard deviation of each column, float64 (D,), 0 where it has no number.

    `parts` returns the rows (n, D) in pieces, anew for each of two passes; NaN does not count. `over_ranks`: other
    ranks hold further rows.
    """

    def add_up(sums: Array) -> Array:
        return np.array(sum_over_ranks(sums.reshape(-1).tolist())).reshape(sums.shape) if over_ranks else sums

    count, total = np.zeros((), np.float64), np.zeros((), np.float64)
    for part in parts():
        is_number = ~np.isnan(part)
        count = count + is_number.sum(0)
        total = total + np.where(is_number, part, 0).sum(0, dtype=np.float64)
    count = np.maximum(add_up(count), 1)
    mean = add_up(total) / count
    squares = sum(np.nansum(np.square(part - mean), axis=0) for part in parts())
    return mean, np.sqrt(add_up(np.asarray(squares)) / count)
