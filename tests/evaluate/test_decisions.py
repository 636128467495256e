"""Temperature and thresholds: chosen on the validation split, shown on another."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from configs.label_types import label_type
from configs.values.deciding import CostsConfig
from tasks.evaluate.decisions import (
    MOST_ROWS,
    can_decide,
    choose_threshold,
    decisions,
    decisions_of_tasks,
    fit_temperature,
    outcome,
    threshold_by,
)
from tasks.evaluators.metrics import OrderedRows
from tasks.evaluators.prediction import Prediction
from tasks.kinds.judged import Deciding


def drawn(rows: int, classes: int, heat: float, seed: int = 0) -> Prediction:
    """Labels drawn from the softmax of logits that are then multiplied by `heat`."""
    random = np.random.default_rng(seed)
    logits = random.normal(size=(rows, classes)) * 2
    shares = torch.from_numpy(logits).softmax(1).cumsum(1).numpy()
    label = (random.random((rows, 1)) > shares).sum(1).clip(max=classes - 1)
    return Prediction(scores=(logits * heat).astype(np.float32), label=label)


@pytest.mark.parametrize("heat", [0.25, 1.0, 7.0])
@pytest.mark.parametrize("classes", [2, 5])
def test_the_temperature_undoes_what_scores_were_multiplied_by(heat: float, classes: int) -> None:
    found = decisions(drawn(20_000, classes, heat), drawn(20_000, classes, heat, seed=1))["temperature"]
    assert found["value"] == pytest.approx(heat, rel=0.05)
    assert found["after"]["nll"] <= found["before"]["nll"] + 1e-4
    assert found["after"]["ece"] < 0.02
    assert (found["before"]["ece"] > 0.05) == (heat != 1)


def test_the_temperature_is_that_of_a_plain_minimiser() -> None:
    prediction = drawn(500, 4, 3.0)
    assert prediction.scores is not None
    assert prediction.label is not None
    logits, label = torch.from_numpy(prediction.scores).double(), torch.from_numpy(prediction.label)
    scale = torch.zeros((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([scale], max_iter=100)

    def cost() -> torch.Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(logits / scale.exp(), label)
        loss.backward()
        return loss

    optimizer.step(cost)  # type: ignore[arg-type]
    assert fit_temperature(prediction.label, prediction.scores.astype(np.float64)) == pytest.approx(
        float(scale.detach().exp()), rel=1e-4
    )


def test_thresholds_do_what_their_rule_says() -> None:
    random = np.random.default_rng(0)
    label = (random.random(3_001) < 0.2).astype(np.float64)
    score = (label * 1.5 + random.normal(size=3_001)).round(1)  # ties
    by = lambda rule, costs=None: choose_threshold(rule, OrderedRows.of(label, score), costs)  # noqa: E731
    best = outcome(label, score, by("f1"))
    f1 = lambda found: 2 * found["precision"] * found["recall"] / (found["precision"] + found["recall"])  # noqa: E731
    assert f1(best) == pytest.approx(max(f1(outcome(label, score, s)) for s in np.unique(score) if s < score.max()))
    half = outcome(label, score, by("precision=0.5"))
    assert half["precision"] >= 0.5
    assert all(
        outcome(label, score, s)["precision"] < 0.5
        for s in np.unique(score)
        if outcome(label, score, s)["recall"] > half["recall"]
    )
    assert outcome(label, score, by("share=0.1"))["flagged"] >= 0.1
    assert half["lift"] == pytest.approx(half["precision"] / label.mean())
    assert outcome(label, score, score.max() + 1) == {"flagged": 0, "precision": 0, "recall": 0, "lift": 0}
    assert by("precision=0.1") is None, "every row is as precise"
    found = outcome(label, score, by("recall=0.7"))
    assert found["recall"] >= 0.7
    lowest = score[score >= by("recall=0.7")].min()
    assert all(outcome(label, score, s)["recall"] < 0.7 for s in np.unique(score) if s > lowest)
    for wrong, missed in ((1, 40), (1, 1), (30, 1)):
        costs = CostsConfig(false_positive=wrong, false_negative=missed)
        least = min(outcome(label, score, s, costs)["cost"] for s in [*np.unique(score), np.inf])
        assert outcome(label, score, by("cost", costs), costs)["cost"] == pytest.approx(least)
    dear = CostsConfig(false_positive=9)
    assert (
        choose_threshold("cost", OrderedRows.of(np.array([0, 1, 0]), np.array([3.0, 2.0, 1.0])), dear) == np.inf
    )  # nobody is


@pytest.mark.parametrize("rule", ["f1", "recall=0.8", "cost", "share=0.1"])
def test_predictions_go_by_a_threshold_as_its_choice_did(rule: str) -> None:
    """Also where many rows have the score at which it lies: float32 and float64 round differently."""
    costs = CostsConfig(false_positive=1, false_negative=5)
    for seed in range(30):
        random = np.random.default_rng(seed)
        label = (random.random(600) < 0.2).astype(np.int64)
        scores = random.normal(size=(600, 2)).astype(np.float32)
        scores[:, 1] += 2 * label
        scores[random.random(600) < 0.5] = random.normal(size=2)
        for two in (True, False):
            shown = scores if two else (scores[:, 1] - scores[:, 0])[:, None]
            given = label if two else label[:, None].astype(np.float32)
            threshold = threshold_by(rule, Prediction(scores=shown, label=given), costs)
            assert threshold is not None
            kind = label_type("multiclass" if two else "binary")
            called = np.asarray(Deciding(threshold=threshold).judged(kind, given, shown)["prediction"])
            difference = scores[:, 1] - scores[:, 0]
            chosen = choose_threshold(rule, OrderedRows.of(label, difference.astype(np.float64)), costs)
            assert np.array_equal(called == 1, difference >= chosen)


@pytest.mark.parametrize("label", [np.zeros(9), np.ones(9), np.ones(0)])
def test_one_class_has_no_thresholds(label: np.ndarray) -> None:
    assert all(
        choose_threshold(rule, OrderedRows.of(label, np.arange(1.0 * len(label)))) is None
        for rule in ("f1", "share=0.1", "recall=0.5")
    )


def test_each_task_has_its_own_where_both_splits_were_scored() -> None:
    valid, test = drawn(100, 2, 2.0), drawn(50, 2, 1.0, 2)
    expected = decisions(valid, test)
    assert {"temperature", "thresholds"} == set(expected) - {"positive"}
    assert decisions_of_tasks({"": {"shown": test, "valid": valid}}, None) == expected
    assert decisions_of_tasks({"": {"valid": valid}}, None) == {}
    both = decisions_of_tasks({"a": {"valid": valid, "shown": test}, "b": {"valid": valid}}, None)
    assert both == {"tasks": {"a": expected}}


def test_of_two_classes_the_rarer_one_is_looked_for() -> None:
    """Its code says nothing: classes with names are numbered in the order of these."""
    random = np.random.default_rng(0)
    rare = random.random(2_000) < 0.05
    score = rare * 2.0 + random.normal(size=2_000)
    second = Prediction(scores=np.stack([np.zeros(2_000), score], 1), label=rare.astype(np.int64))
    first = Prediction(scores=np.stack([score, np.zeros(2_000)], 1), label=1 - rare.astype(np.int64))
    found, turned = decisions(second, second), decisions(first, first)
    assert (found.get("positive"), turned.get("positive")) == (None, 0)
    assert found["thresholds"] == turned["thresholds"]
    best = found["thresholds"][0]
    flagged = 1 / (1 + np.exp(-score)) >= best["probability"] - 1e-9
    assert flagged.mean() == pytest.approx(best["flagged"]), "what predictions call the score"


def test_missing_labels_are_left_out() -> None:
    prediction = drawn(400, 3, 2.0)
    assert prediction.label is not None
    assert prediction.scores is not None
    some = Prediction(scores=prediction.scores, label=np.where(np.arange(400) % 2, prediction.label, -1))
    half = Prediction(scores=prediction.scores[1::2], label=prediction.label[1::2])
    assert decisions(some, some) == decisions(half, half)


def test_which_tasks_decide() -> None:
    assert can_decide(drawn(5, 3, 1.0), label_type("multiclass"))
    assert can_decide(Prediction(scores=np.zeros((4, 1)), label=np.zeros((4, 1))), label_type("binary"))
    assert not can_decide(Prediction(scores=np.zeros((4, 2)), label=np.zeros((4, 2))), label_type("multilabel"))
    assert not can_decide(Prediction(scores=np.zeros((4, 1)), label=np.zeros((4, 1))), label_type("regression"))
    assert MOST_ROWS > 0
