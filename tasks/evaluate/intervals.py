"""How far metrics would stray on other rows of the same kind: bootstrap intervals (Efron, 1979), percentile method.

Drawn are rows with a label; edges, each with its own negatives, or beside a pool that stays, as it belongs to the data
set; the two queries of each triple; rows of a ranking, each with its whole list. Of many rows `MOST_ROWS` are drawn
each time and distances from the metric on all rows shrunk by sqrt(drawn / rows), as they do with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from configs.errors import DataError
from configs.registry import EVALUATORS
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.metrics import Array
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import SeveralTasks, make_evaluator
from tasks.kinds.of import kind_of
from tasks.storage.manifests import GraphManifest

MOST_ROWS = 10_000
MOST_DRAWS, FEWEST_DRAWS = 200, 50
_WORK = 40_000_000
"""Numbers that all draws together may read, about, as long as there are FEWEST_DRAWS: a second or a few."""
_TAIL = 0.025
_LEAST_DEFINED = 0.9
_SEED = 20_261_126

Interval = tuple[float, float]


@dataclass(frozen=True)
class Draws:
    """A metric on draws of a split's rows: of other scores of the same rows the same draws."""

    value: float
    """On all rows."""
    drawn: Array
    """float64 (n,); NaN where the metric is not defined on a draw."""
    rows: int
    """Rows of the split."""
    size: int
    """Rows of a draw."""

    def interval(self, besides: Draws | None = None) -> Interval | None:
        """Return where 95 % lie, of the metric or of how much it is above another; None: too few draws have one."""
        drawn = self.drawn if besides is None else self.drawn - besides.drawn
        value = self.value if besides is None else self.value - besides.value
        defined = np.sort(drawn[np.isfinite(drawn)])
        if len(defined) < _LEAST_DEFINED * len(drawn):
            return None
        outside = int(_TAIL * len(defined))  # at each end
        low, high = defined[outside], defined[-1 - outside]
        shrink = float(np.sqrt(self.size / self.rows))
        return float(shrink * low + (1 - shrink) * value), float(shrink * high + (1 - shrink) * value)

    def record(self) -> dict[str, int]:
        """Return how many `draws` there are, on how many the metric is `defined`, of `rows` how many each has."""
        defined = int(np.isfinite(self.drawn).sum())
        return {"draws": len(self.drawn), "defined": defined, "rows": self.rows, "drawn_rows": self.size}


def draw(prediction: Prediction, metric: Callable[[Prediction], float], value: float) -> Draws:
    """Measure draws of a prediction's rows; which rows they are depends on their number only.

    `value` is the metric on all rows. `metric` may raise DataError where a draw does not define it, such as one without
    a positive.
    """
    parts = (prediction.scores, prediction.positive, prediction.ranks, prediction.ranked)
    rows = next(len(part) for part in parts if part is not None)
    size = min(rows, MOST_ROWS)
    pool = prediction.negative.size if prediction.negative is not None and prediction.has_pool else 0
    work = size * _numbers_a_row(prediction) + pool
    count = int(np.clip(_WORK // max(1, work), FEWEST_DRAWS, MOST_DRAWS))
    random = np.random.default_rng(_SEED)
    drawn = np.full(count, np.nan)
    for number in range(count):
        chosen = random.integers(rows, size=size)
        try:
            drawn[number] = metric(prediction.taken(chosen))
        except DataError:
            continue
    return Draws(value, drawn, rows, size)


class SureMetrics:
    """A model's metrics on a split, and those of its controls, with how sure those are that judge."""

    def __init__(
        self, measure: Callable[[Prediction], dict[str, float]], judges: Sequence[Evaluator], prediction: Prediction
    ) -> None:
        """Measure the model's `prediction`; a further metric that its rows do not define has no interval.

        `measure` gives all metrics, and raises; `judges` give one each, of which the first judges the model.
        """
        self._measure, self.values = measure, measure(prediction)
        self._judges = {judge.metric: judge for judge in judges if judge.metric in self.values}
        self._own = self._draws(prediction, self.values)
        self._last: dict[str, Draws] = {}
        self._above: dict[str, dict[str, Interval]] = {metric: {} for metric in self._judges}

    def compare(self, prediction: Prediction) -> dict[str, float]:
        """Measure a control on the same rows."""
        values = self._measure(prediction)
        self._last = self._draws(prediction, values)
        return values

    def keep(self, name: str, values: dict[str, float]) -> None:
        """Take what was measured last for the control of this name, if these are its metrics."""
        for metric, last in self._last.items():
            if values.get(metric) == last.value and (interval := self._own[metric].interval(last)) is not None:
                self._above[metric][name] = interval
        self._last = {}

    def intervals(self) -> dict[str, Any]:
        """Return the 95 % interval of the `metric` that judges, by how much it is `above` controls, and `Draws.record`.

        `further`: the same by the names of other metrics.
        """
        by_metric = {
            name: {"metric": own.interval(), "above": self._above[name], **own.record()}
            for name, own in self._own.items()
        }
        first = by_metric.pop(next(iter(by_metric)))
        return first | ({"further": by_metric} if by_metric else {})

    def _draws(self, prediction: Prediction, values: dict[str, float]) -> dict[str, Draws]:
        drawn = {}
        for name, judge in self._judges.items():
            drawn[name] = draw(prediction, lambda some, judge=judge: judge(some)[judge.metric], values[name])  # type: ignore[misc]
        return drawn


def _numbers_a_row(prediction: Prediction) -> int:
    if prediction.scores is not None:
        return int(prediction.scores[:1].size)
    if prediction.ranked is not None:
        return prediction.ranked.places.shape[1]
    return 1 if prediction.negative is None or prediction.has_pool else int(prediction.negative.shape[1])


@dataclass(frozen=True)
class Measuring:
    """Measures predictions of a graph."""

    evaluator: Evaluator
    """Whose metric judges."""
    further: Sequence[Evaluator]

    @classmethod
    def of(cls, config: dict[str, Any], graph: GraphManifest) -> Measuring:
        """Make the evaluator of a recipe's options, and what tells something beside it. Raises RecipeError."""
        evaluator = make_evaluator(EVALUATORS.config(config), graph)
        further = [one for one in kind_of(graph).secondary(graph) if one.metric != evaluator.metric]
        for one in further:
            one.relations = evaluator.relations
        return cls(evaluator, further)

    @property
    def metric(self) -> str:
        """Name of the metric that judges."""
        return self.evaluator.metric

    def measure(self, prediction: Prediction) -> dict[str, float]:
        """Return all metrics, the one that judges first. Raises DataError where that is not defined."""
        values = self.evaluator(prediction)
        for one in self.further:
            with suppress(DataError):  # a further metric may be undefined (one class only)
                values = {**one(prediction), **values}
        first = {self.metric: values.pop(self.metric)}
        if isinstance(self.evaluator, SeveralTasks):  # one task after the other
            tasks = [head.view.head.name for head in self.evaluator.heads]
            names = sorted(values, key=lambda name: tasks.index(name.rpartition(".")[0]))
            values = {name: values[name] for name in names}
        return {**first, **values}

    def sure(self, prediction: Prediction) -> SureMetrics:
        """Measure a model, with how sure its metrics are."""
        judges = self.evaluator.heads if isinstance(self.evaluator, SeveralTasks) else [self.evaluator]
        return SureMetrics(self.measure, judges, prediction)
