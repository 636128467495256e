"""By what a split is measured: the metric that judges a model, and others beside it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from configs.errors import DataError
from configs.registry import EVALUATORS
from tasks.evaluate.intervals import SureMetrics
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import SeveralTasks, make_evaluator
from tasks.kinds.of import kind_of
from tasks.storage.manifests import GraphManifest


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
