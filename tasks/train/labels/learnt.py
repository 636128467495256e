"""The labels that a training learns: the units of a regression's, and nodes with predicted ones."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from models.facts import GraphFacts
from tasks.arrays import Array
from tasks.evaluators.metrics import probabilities
from tasks.inference.predictor import Predictor
from tasks.sampling.rows.labels import label_scale
from tasks.storage.graph_facts import graph_facts
from tasks.storage.graph_store import GraphStore
from tasks.storage.heads import head_views
from tasks.train.ranks.collectives import sum_over_ranks
from tasks.train.state.checkpoint import load_model


def training_facts(store: GraphStore, *, over_ranks: bool = False) -> GraphFacts:
    """Return what a model needs to know of a graph that it is trained on: `graph_facts` and the scale of labels.

    `over_ranks`: each rank holds a part of the graph, and all of them call this together.
    """
    facts = graph_facts(store.manifest)
    heads = head_views(store.manifest)
    if not store.manifest.label_type.is_number and not any(view.head.label_type.is_number for view in heads):
        return facts
    labels = store[store.manifest.split_rows.labels]

    def add_up(sums: Array) -> Array:
        return np.array(sum_over_ranks(sums.reshape(-1).tolist())).reshape(sums.shape)

    mean, scale = label_scale(labels, store.training_rows(), add_up if over_ranks else None)
    if heads:  # a model has scores of several tasks: 0 and 1 but for those of regressions
        of_labels, num_scores = (mean, scale), heads[-1].scores.stop
        mean, scale = np.zeros(num_scores), np.ones(num_scores)
        for view in heads:
            if view.head.label_type.is_number:
                mean[view.scores], scale[view.scores] = (numbers[view.labels] for numbers in of_labels)
    return replace(facts, label_mean=tuple(mean.tolist()), label_scale=tuple(scale.tolist()))


def with_predicted_labels(store: GraphStore, teacher: Path, min_probability: float) -> GraphStore:
    """Return the same graph with more training nodes: those whose class the teacher gives `min_probability` or more.

    Their own labels, where they have any, are not looked at. So the model gets to know nodes that differ from the
    training split, as later ones do. Source: Sun, Gu, Hu, "Scalable and adaptive graph neural networks with
    self-label-enhanced training" (https://arxiv.org/abs/2104.09376), section 4.3. Validation and evaluation read the
    graph itself. Its `label` holds predictions for the nodes added to `train_idx`, and -1 for all others outside the
    training split: nothing of their labels can be read.
    """
    model, manifest = load_model(teacher), store.manifest
    train = np.asarray(store["train_idx"])
    nodes, types = np.arange(manifest.num_nodes), store.get("node_type")
    if types is not None:  # others have no class at all
        nodes = np.flatnonzero(types == manifest.node_types.index(manifest.target_type))
    others = np.setdiff1d(nodes, train, assume_unique=True)
    likely = probabilities(Predictor(store).node_scores(model, others))
    confident = likely.max(1) >= min_probability
    label = np.full(manifest.num_nodes, -1, np.int64)
    label[train] = store["label"][train]
    label[others[confident]] = likely.argmax(1)[confident]
    grown = GraphStore(store.folder, manifest)
    # A store opens arrays when they are asked for: these are open already, in memory.
    grown._open |= {"label": label, "train_idx": np.union1d(train, others[confident]).astype(train.dtype)}
    return grown
