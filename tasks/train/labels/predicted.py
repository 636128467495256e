"""A graph whose training split has grown by nodes with predicted labels."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tasks.evaluators.metrics import probabilities
from tasks.inference.predictor import Predictor
from tasks.storage.graph_store import GraphStore
from tasks.train.state.checkpoint import load_model


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
