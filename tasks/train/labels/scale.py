"""The units that a regression's model computes in: mean and standard deviation of each label in the training split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from models.facts import GraphFacts
from tasks.sampling.rows.moments import label_scale
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import Array, GraphStore
from tasks.storage.heads import HeadView, head_views
from tasks.train.ranks.collectives import sum_over_ranks


def training_facts(store: GraphStore, *, over_ranks: bool = False) -> GraphFacts:
    """Return what a model needs to know of a graph that it is trained on: `graph_facts` and the scale of labels.

    `over_ranks`: each rank holds a part of the graph, and all of them call this together.
    """
    facts = graph_facts(store.manifest)
    heads = head_views(store.manifest)
    if not store.manifest.label_type.is_number and not any(view.head.label_type.is_number for view in heads):
        return facts
    labels = store[store.manifest.split_rows.labels]
    mean, scale = label_scale(labels, store.training_rows(), _sum_over_ranks if over_ranks else None)
    if heads:
        mean, scale = _by_score(heads, mean, scale)
    return replace(facts, label_mean=tuple(mean.tolist()), label_scale=tuple(scale.tolist()))


def _by_score(heads: Sequence[HeadView], mean: Array, scale: Array) -> tuple[Array, Array]:
    """Return mean and scale of each score of several tasks, of those of all labels: 0 and 1 but of regressions."""
    means, scales = np.zeros(heads[-1].scores.stop), np.ones(heads[-1].scores.stop)
    for view in heads:
        if view.head.label_type.is_number:
            means[view.scores], scales[view.scores] = mean[view.labels], scale[view.labels]
    return means, scales


def _sum_over_ranks(sums: Array) -> Array:
    return np.array(sum_over_ranks(sums.reshape(-1).tolist())).reshape(sums.shape)
