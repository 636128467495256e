"""Bootstrap intervals: as wide as theory says, and the same rows drawn for model and control."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from configs.errors import DataError
from configs.label_types import label_type
from configs.registry import EVALUATORS
from tasks.evaluate import intervals
from tasks.evaluate.intervals import SureMetrics, draw
from tasks.evaluate.verdicts import hardly_above_controls, sureness
from tasks.evaluators import metrics
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.ranked_rows import RankedRows
from tasks.ranking.ranks import TripleRanks


def accuracy(prediction: Prediction) -> float:
    label, predicted = prediction.classes()
    return float(np.mean(label == predicted))


class ByAccuracy:
    metric = "accuracy"

    def __call__(self, prediction: Prediction) -> dict[str, float]:
        return {"accuracy": accuracy(prediction)}


def sure_accuracy(prediction: Prediction) -> SureMetrics:
    judge: Any = ByAccuracy()
    return SureMetrics(judge, [judge], prediction)


def of_accuracy(rows: int, right: float, seed: int = 0, classes: int = 3) -> Prediction:
    random = np.random.default_rng(seed)
    label = random.integers(classes, size=rows)
    guess = np.where(random.random(rows) < right, label, (label + 1) % classes)
    return Prediction(scores=np.eye(classes, dtype=np.float32)[guess], label=label)


@pytest.mark.parametrize("rows", [500, 4_001, 90_001])
def test_an_accuracys_interval_is_as_wide_as_a_shares(rows: int) -> None:
    prediction = of_accuracy(rows, 0.8)
    drawn = draw(prediction, accuracy, accuracy(prediction))
    interval = drawn.interval()
    assert interval is not None
    low, high = interval
    deviation = np.sqrt(drawn.value * (1 - drawn.value) / rows)
    assert low < drawn.value < high
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.25)


def test_intervals_hold_for_95_of_100_splits() -> None:
    holds = 0
    for seed in range(100):
        prediction = of_accuracy(300, 0.7, seed)
        low, high = draw(prediction, accuracy, accuracy(prediction)).interval() or (1.0, 0.0)
        holds += low <= 0.7 <= high
    assert 88 <= holds <= 100


def test_a_control_is_drawn_on_the_same_rows() -> None:
    """The difference of two that nearly always agree is far surer than either."""
    own, random = of_accuracy(2_000, 0.8), np.random.default_rng(1)
    worse = own.scores.copy()
    worse[random.integers(2_000, size=40)] = [1, 0, 0]
    sure = sure_accuracy(own)
    sure.keep("features", sure.compare(Prediction(scores=worse, label=own.label)))
    found = sure.intervals()
    low, high = found["above"]["features"]
    assert 0 < low < high < 0.03
    assert found["metric"][1] - found["metric"][0] > 0.03


def test_only_what_was_measured_last_is_kept() -> None:
    sure = sure_accuracy(of_accuracy(200, 0.8))
    sure.compare(of_accuracy(200, 0.5))
    sure.keep("chance", {"accuracy": 0.123})  # a number that was computed elsewhere
    assert sure.intervals()["above"] == {}


def test_what_few_draws_define_has_no_interval() -> None:
    label = np.zeros((40, 1), np.float32)
    label[0] = 1  # missing in a third of the draws

    def area(prediction: Prediction) -> float:
        truth, score = prediction.columns()
        value = metrics.rocauc(truth[:, 0], score[:, 0])
        if np.isnan(value):
            raise DataError("one class")
        return value

    random = np.random.default_rng(0)
    assert draw(Prediction(scores=random.random((40, 1)), label=label), area, 0.5).interval() is None


@pytest.mark.parametrize("own_negatives", [True, False])
def test_edges_are_drawn_with_their_own_negatives_and_a_pool_stays(own_negatives: bool) -> None:
    positive = np.arange(50.0)
    negative = np.repeat(positive[:, None], 3, 1) if own_negatives else np.arange(7.0)
    seen = []

    def look(prediction: Prediction) -> float:
        assert prediction.negative is not None
        assert prediction.positive is not None
        if own_negatives:
            assert np.array_equal(prediction.negative[:, 0], prediction.positive)
        else:
            assert prediction.negative is negative
        seen.append(len(np.unique(prediction.positive)))
        return 0.0

    draw(Prediction(positive=positive, negative=negative), look, 0.0)
    assert min(seen) < 45


def test_queries_of_triples_are_drawn() -> None:
    ranks = TripleRanks(np.arange(100), np.zeros(100, np.int64), np.full(100, 100))
    mrr = lambda some: metrics.mrr_of_triples(some.true_ranks())["mrr"]  # noqa: E731
    drawn = draw(Prediction(ranks=ranks), mrr, mrr(Prediction(ranks=ranks)))
    low, high = drawn.interval() or (1.0, 0.0)
    assert low < drawn.value < high


def test_wide_scores_are_drawn_less_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_WORK", 200 * 60 * 3)
    prediction = of_accuracy(200, 0.8)
    assert len(draw(prediction, accuracy, 0.8).drawn) == 60


def test_what_may_be_chance_is_said() -> None:
    report = {"intervals": {"test": {"metric": None, "above": {"features": (-0.01, 0.02), "majority": (0.1, 0.2)}}}}
    (line,) = hardly_above_controls("accuracy", {"report": report})
    assert "a linear model that sees only the rows' own features may be chance" in line
    assert "-0.0100 to 0.0200" in line


def _few_positives() -> Prediction:
    """Two positives among 60, one of them the best: ROC-AUC near 1, and its draws skewed."""
    label = np.zeros((60, 1))
    label[[0, 59]] = 1
    return Prediction(scores=np.linspace(0.9, -0.5, 60)[:, None] - (np.arange(60) == 59)[:, None] * -1.35, label=label)


def _classes() -> Prediction:
    return of_accuracy(25, 0.96, seed=3)


def _pairs() -> Prediction:
    random = np.random.default_rng(0)
    return Prediction(positive=random.normal(3, 1, 12), negative=random.normal(size=400))


def _lists() -> Prediction:
    return Prediction(ranked=RankedRows(np.array([[1.0], [2.0], [1.0], [1.0], [9.0]]), np.ones(5, np.int64)))


def _near_numbers() -> Prediction:
    random = np.random.default_rng(0)
    label = random.normal(size=(8, 1))
    return Prediction(scores=label + random.normal(size=(8, 1)) * np.r_[[3.0], [0.01] * 7][:, None], label=label)


def _triple_ranks() -> Prediction:
    return Prediction(ranks=TripleRanks(np.array([0] * 19 + [400]), np.zeros(20, np.int64), np.full(20, 500)))


@pytest.mark.parametrize(
    ("name", "task_type", "make", "least", "most"),
    [
        ("accuracy", "multiclass", _classes, 0, 1),
        ("accuracy", "binary", _few_positives, 0, 1),
        ("f1", "multiclass", _classes, 0, 1),
        ("rocauc", "binary", _few_positives, 0, 1),
        ("rocauc", "multiclass", _classes, 0, 1),
        ("rocauc", "link", _pairs, 0, 1),
        ("average_precision", "binary", _few_positives, 0, 1),
        ("average_precision", "link", _pairs, 0, 1),
        ("pr_auc", "link", _pairs, 0, 1),
        ("f1", "link", _pairs, 0, 1),
        ("hits", "link", _pairs, 0, 1),
        ("mrr", "link", _pairs, 0, 1),
        ("mrr", "triple", _triple_ranks, 0, 1),
        ("hits", "triple", _triple_ranks, 0, 1),
        ("rmse", "regression", _near_numbers, 0, np.inf),
        ("mae", "regression", _near_numbers, 0, np.inf),
        ("r2", "regression", _near_numbers, -np.inf, 1),
        ("ranking", "ranking", _lists, 0, 1),
    ],
)
@pytest.mark.parametrize("most_rows", [10_000, 6])
def test_an_interval_is_of_values_that_draws_have(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    task_type: str,
    make: Callable[[], Prediction],
    least: float,
    most: float,
    most_rows: int,
) -> None:
    monkeypatch.setattr(intervals, "MOST_ROWS", most_rows)
    graph: Any = SimpleNamespace(task_type=task_type, label_type=label_type(task_type), dataset="small", ranking=None)
    evaluator = EVALUATORS.create(EVALUATORS.config({"name": name}), graph)
    prediction = make()
    drawn = draw(prediction, lambda some: evaluator(some)[evaluator.metric], evaluator(prediction)[evaluator.metric])
    interval = drawn.interval()
    if interval is None:
        assert drawn.record()["defined"] < 0.9 * len(drawn.drawn)
        return
    low, high = interval
    assert least <= low <= high <= most
    if drawn.size == drawn.rows:
        defined = drawn.drawn[np.isfinite(drawn.drawn)]
        assert low in defined
        assert high in defined
        assert np.mean((low <= defined) & (defined <= high)) >= 0.95
        assert np.mean((low < defined) & (defined < high)) <= 0.96


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            {"metric": (0.9, 0.95), "draws": 200, "defined": 200, "rows": 1200, "drawn_rows": 1200},
            "valid: at least 95 % of 200 draws of its 1,200 rows have ap 0.9000 to 0.9500",
        ),
        (
            {"metric": (0.9, 0.95), "draws": 200, "defined": 190, "rows": 40, "drawn_rows": 40},
            "valid: at least 95 % of the 190 draws that define it, of 200, of its 40 rows have ap 0.9000 to 0.9500",
        ),
        (
            {"metric": (0.9, 0.95), "draws": 50, "defined": 50, "rows": 90_000, "drawn_rows": 10_000},
            "valid: at least 95 % of draws of its 90,000 rows (judged by 50 draws of 10,000) have ap 0.9000 to 0.9500",
        ),
        (
            {"metric": (1.0, 1.0), "draws": 200, "defined": 200, "rows": 30, "drawn_rows": 30},
            "valid: 200 draws of its 30 rows all have ap 1.0000: they cannot say how sure it is",
        ),
        (
            {"metric": None, "draws": 200, "defined": 100, "rows": 30, "drawn_rows": 30},
            "valid: 100 of 200 draws of its 30 rows have no ap: there are too few rows, or of one kind, to say how "
            "sure it is",
        ),
    ],
)
def test_what_draws_say_is_said(record: dict[str, Any], said: str) -> None:
    assert sureness("valid", "ap", record) == said
