"""How far metrics would stray on other rows of the same kind: bootstrap intervals (Efron, 1979).

A split's rows are drawn with replacement, again and again, and measured; an interval goes from one of these values to
another so that 95 % of the draws or a little more lie between (the percentile method). So it never leaves what the
metric can be. It says how surely the rows tell, not what another seed of the training would give.

| task | what is drawn |
|---|---|
| node, graph | rows with a label |
| link, K negatives for each edge | edges, each with its own negatives |
| link, one pool of negatives | edges; the pool stays, as it belongs to the data set |
| triple | the two queries of each triple |
| ranking | rows, each with its whole list |

Of many rows `MOST_ROWS` are drawn each time and distances from the metric on all rows shrunk by sqrt(drawn / rows), as
they do with the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from configs.errors import DataError
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.metrics import Array
from tasks.evaluators.prediction import Prediction

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

    @property
    def defined(self) -> int:
        """Draws on which the metric is defined."""
        return int(np.isfinite(self.drawn).sum())

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
        return {"draws": len(self.drawn), "defined": self.defined, "rows": self.rows, "drawn_rows": self.size}


def draw(prediction: Prediction, metric: Callable[[Prediction], float], value: float) -> Draws:
    """Measure draws of a prediction's rows; which rows they are depends on their number only.

    `value` is the metric on all rows. `metric` may raise DataError where a draw does not define it, such as one without
    a positive.
    """
    rows = _rows(prediction)
    size = min(rows, MOST_ROWS)
    pool = prediction.negative.size if prediction.negative is not None and _has_pool(prediction) else 0
    work = size * _numbers_a_row(prediction) + pool
    count = int(np.clip(_WORK // max(1, work), FEWEST_DRAWS, MOST_DRAWS))
    random = np.random.default_rng(_SEED)
    drawn = np.full(count, np.nan)
    for number in range(count):
        chosen = random.integers(rows, size=size)
        try:
            drawn[number] = metric(_taken(prediction, chosen))
        except DataError:
            continue
    return Draws(value, drawn, rows, size)


class SureMetrics:
    """A model's metrics on a split, and those of its controls, with how sure they are."""

    def __init__(
        self,
        measure: Callable[[Prediction], dict[str, float]],
        metric: str,
        judge: Callable[[Prediction], dict[str, float]],
        prediction: Prediction,
    ) -> None:
        """Measure the model. Raises what `measure` raises.

        Args:
            measure: gives all metrics.
            metric: name of the one that the model is judged by.
            judge: gives that one at least.
            prediction: the model's.
        """
        self._measure, self._metric, self._judge = measure, metric, judge
        self.values = measure(prediction)
        """All metrics of the model."""
        self._own = self._draws(prediction, self.values)
        self._last: Draws | None = None
        self._above: dict[str, Interval] = {}

    def compare(self, prediction: Prediction) -> dict[str, float]:
        """Measure a control on the same rows."""
        values = self._measure(prediction)
        self._last = self._draws(prediction, values)
        return values

    def keep(self, name: str, values: dict[str, float]) -> None:
        """Take what was measured last for the control of this name, if these are its metrics."""
        last, self._last = self._last, None
        if last is not None and values.get(self._metric) == last.value:
            interval = self._own.interval(last)
            if interval is not None:
                self._above[name] = interval

    def intervals(self) -> dict[str, Any]:
        """Return 95 % intervals of the model's `metric`, and by control of how much it is `above`; `Draws.record`."""
        return {"metric": self._own.interval(), "above": self._above, **self._own.record()}

    def _draws(self, prediction: Prediction, values: dict[str, float]) -> Draws:
        return draw(prediction, lambda some: self._judge(some)[self._metric], values[self._metric])


class SureOfEach:
    """`SureMetrics` by each of several metrics, of which the first one judges the model."""

    def __init__(
        self,
        measure: Callable[[Prediction], dict[str, float]],
        judges: Sequence[Evaluator],
        prediction: Prediction,
    ) -> None:
        """Measure the model; a further metric that its rows do not define has no interval. Raises what `measure` does.

        Args:
            measure: gives all metrics.
            judges: give one each.
            prediction: the model's.
        """
        values = measure(prediction)
        self._parts = {
            judge.metric: SureMetrics(measure, judge.metric, judge, prediction)
            for judge in judges
            if judge.metric in values
        }
        self._first = judges[0].metric
        self.values = values
        """All metrics of the model."""

    def compare(self, prediction: Prediction) -> dict[str, float]:
        """Measure a control on the same rows."""
        found = [part.compare(prediction) for part in self._parts.values()]
        return found[0]

    def keep(self, name: str, values: dict[str, float]) -> None:
        """See `SureMetrics.keep`."""
        for part in self._parts.values():
            part.keep(name, values)

    def intervals(self) -> dict[str, Any]:
        """Return those of the metric that judges, and by metric those of `further` ones."""
        further = {name: part.intervals() for name, part in self._parts.items() if name != self._first}
        return self._parts[self._first].intervals() | ({"further": further} if further else {})


def _rows(prediction: Prediction) -> int:
    parts = (prediction.scores, prediction.positive, prediction.ranks, prediction.ranked)
    return next(len(part) for part in parts if part is not None)


def _numbers_a_row(prediction: Prediction) -> int:
    if prediction.scores is not None:
        return int(prediction.scores[:1].size)
    if prediction.ranked is not None:
        return prediction.ranked.places.shape[1]
    return 1 if prediction.negative is None or _has_pool(prediction) else int(prediction.negative.shape[1])


def _has_pool(prediction: Prediction) -> bool:
    return prediction.negative is not None and prediction.negative.ndim == 1


def _taken(prediction: Prediction, rows: Array) -> Prediction:
    """Return some rows of a prediction, int64 (n,)."""
    names = ["scores", "label", "positive"] + ([] if _has_pool(prediction) else ["negative"])
    found = {name: values[rows] for name in names if (values := getattr(prediction, name)) is not None}
    if prediction.ranks is not None:
        found["ranks"] = prediction.ranks.taken(rows)
    if prediction.relations is not None:
        found["relations"] = prediction.relations[0][rows], prediction.relations[1]
    if prediction.ranked is not None:
        found["ranked"] = prediction.ranked.taken(rows)
    return replace(prediction, **found)
