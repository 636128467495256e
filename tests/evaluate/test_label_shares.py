"""F1 by share of labels, against scikit-learn."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.multiclass import OneVsRestClassifier

from tasks.evaluate.vectors import _most_frequent_of_each, describe_vectors
from tasks.evaluators.label_shares import f1_by_share, likeliest
from tasks.evaluators.metrics import f1_of_columns
from tasks.storage.graph_store import GraphStore
from tests.support import node_graph


def problem(rows: int = 400, classes: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(rows, 12)).astype(np.float32)
    scores = x @ rng.normal(size=(12, classes)) + rng.normal(size=(rows, classes))
    members = scores > 2.5
    members[np.arange(rows), scores.argmax(1)] = True
    return torch.from_numpy(x), torch.from_numpy(members)


def test_scores_are_those_of_scikit_learn() -> None:
    x, members = problem()
    [found] = f1_by_share(x, members, [0.3], splits=1, strength=2.0, seed=4)
    order = np.random.default_rng([4, 0]).permutation(len(x))
    train, test = order[:120], order[120:]
    peer = OneVsRestClassifier(LogisticRegression(C=2.0, solver="liblinear", tol=1e-6))
    peer.fit(x.numpy()[train], members.numpy()[train])
    scores, truth = peer.decision_function(x.numpy()[test]), members.numpy()[test]
    predicted = np.zeros_like(truth)
    for i, count in enumerate(truth.sum(1)):
        predicted[i, np.argsort(-scores[i])[:count]] = True
    assert found["micro"] == pytest.approx(f1_score(truth, predicted, average="micro", zero_division=0), abs=0.005)
    assert found["macro"] == pytest.approx(f1_score(truth, predicted, average="macro", zero_division=0), abs=0.01)


def test_more_labels_are_better_and_splits_differ() -> None:
    x, members = problem(1500)
    few, many = f1_by_share(x, members, [0.02, 0.8], splits=4, strength=1.0)
    assert many["micro"] > few["micro"] + 0.03
    assert few["micro_spread"] > 0


def test_a_share_that_leaves_no_node_to_predict_is_left_out() -> None:
    x, members = problem(40)
    shares = [0.5, 0.975, 0.99]
    assert [one["share"] for one in f1_by_share(x, members, shares, splits=1)] == [0.5, 0.975]


def test_an_evaluation_says_which_shares_are_left_out(tmp_path: Path) -> None:
    graph = node_graph(tmp_path / "graph")
    store = GraphStore(graph.folder, graph.manifest)
    table = torch.randn(graph.manifest.num_nodes, 4)
    facts = SimpleNamespace(out_dim=4)
    model: Any = SimpleNamespace(table=table, lengths=table.norm(dim=1), facts=facts)
    found = describe_vectors(model, store, None, shares=[0.5, 0.9999], most_labelled=40)
    assert [one["share"] for one in found["label_shares"]["shares"]] == [0.5]
    (note,) = found["notes"]
    assert "leaves out 0.9999: of 40 labelled nodes none is left to predict; the largest share that works is" in note
    only = describe_vectors(model, store, None, shares=[0.9999], most_labelled=40)
    assert "label_shares" not in only
    assert "notes" not in describe_vectors(model, store, None, shares=[0.5], most_labelled=40)


def test_a_node_of_several_groups_is_drawn_in_the_largest() -> None:
    label = np.array([[1, 0, 1], [0, 0, 1], [0, 1, np.nan], [0, 0, 0], [0, 1, 1]], np.float32)
    assert _most_frequent_of_each(label).tolist() == [2, 2, 1, -1, 2]


def test_as_many_classes_as_a_node_has() -> None:
    scores = torch.tensor([[0.1, 0.9, 0.5], [3.0, 3.0, 1.0], [1.0, 2.0, 3.0]])
    expected = torch.tensor([[False, True, True], [True, False, False], [False, False, False]])
    assert torch.equal(likeliest(scores, torch.tensor([2, 1, 0])), expected)


def test_a_class_that_nobody_has_counts_0() -> None:
    truth = np.array([[1.0, 0.0], [1.0, 0.0]])
    for right, expected in ((truth, (1.0, 0.5)), (0 * truth, (0.0, 0.0))):
        assert tuple(f1_of_columns(right, right == 1, average) for average in ("micro", "macro")) == expected
