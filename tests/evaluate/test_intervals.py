"""Bootstrap intervals: as wide as theory says, and the same rows drawn for model and control."""

from __future__ import annotations

import numpy as np
import pytest

from configs.errors import DataError
from tasks.evaluate import intervals
from tasks.evaluate.intervals import SureMetrics, draw
from tasks.evaluate.verdicts import hardly_above_controls
from tasks.evaluators import metrics
from tasks.evaluators.prediction import Prediction
from tasks.ranking.ranks import Ranks


def accuracy(prediction: Prediction) -> float:
    label, predicted = prediction.classes()
    return float(np.mean(label == predicted))


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
    assert own.scores is not None
    worse = own.scores.copy()
    worse[random.integers(2_000, size=40)] = [1, 0, 0]
    measure = lambda prediction: {"accuracy": accuracy(prediction)}  # noqa: E731
    sure = SureMetrics(measure, "accuracy", measure, own)
    sure.keep("features", sure.compare(Prediction(scores=worse, label=own.label)))
    found = sure.intervals()
    low, high = found["above"]["features"]
    assert 0 < low < high < 0.03
    assert found["metric"][1] - found["metric"][0] > 0.03


def test_only_what_was_measured_last_is_kept() -> None:
    own = of_accuracy(200, 0.8)
    measure = lambda prediction: {"accuracy": accuracy(prediction)}  # noqa: E731
    sure = SureMetrics(measure, "accuracy", measure, own)
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
    ranks = Ranks(np.arange(100), np.zeros(100, np.int64), np.full(100, 100))
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
