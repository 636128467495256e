"""Evaluators of several tasks that share a model: of each task its own, under the task's name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from configs.base import ComponentConfig
from configs.errors import DataError, RecipeError
from tasks.evaluators.evaluators import Evaluator, single_evaluator
from tasks.evaluators.prediction import Prediction
from tasks.storage.heads import HeadView, head_manifest, head_views
from tasks.storage.manifests import GraphManifest


def of_head(prediction: Prediction, view: HeadView) -> Prediction:
    """Return what is predicted of one of several tasks."""
    assert prediction.scores is not None
    assert prediction.label is not None
    return replace(prediction, scores=prediction.scores[:, view.scores], label=view.label_of(prediction.label))


class HeadEvaluator(Evaluator):
    """Measures one of several tasks: `churn.rocauc`."""

    task_types = frozenset({"several"})

    def __init__(self, config: ComponentConfig, graph: GraphManifest, view: HeadView) -> None:
        super().__init__(config, graph)
        self.view, self._own = view, single_evaluator(config, head_manifest(graph, view.head))
        self.metric = f"{view.head.name}.{self._own.metric}"
        self.higher_is_better = self._own.higher_is_better

    @property
    def names(self) -> Sequence[str]:
        """Names of all that it measures."""
        return [f"{self.view.head.name}.{name}" for name in self._own.names]

    def __call__(self, prediction: Prediction) -> dict[str, float]:
        """Measure the task."""
        values = self._own(of_head(prediction, self.view))
        return {f"{self.view.head.name}.{name}": value for name, value in values.items()}


class SeveralTasks(Evaluator):
    """Measures all tasks; the first one judges the model."""

    task_types = frozenset({"several"})

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        """Raises RecipeError for an evaluator that is not `auto`: each task names its own metric."""
        super().__init__(config, graph)
        if config.name != "auto":
            raise RecipeError(
                f"evaluate.evaluator={config.name}: {graph.dataset} has several tasks, and each names its metric "
                "(dataset.predict); leave it at auto"
            )
        self.heads = [HeadEvaluator(config, graph, view) for view in head_views(graph)]
        self.metric, self.higher_is_better = self.heads[0].metric, self.heads[0].higher_is_better

    @property
    def names(self) -> Sequence[str]:
        """Names of all that it measures."""
        return [name for head in self.heads for name in head.names]

    def __call__(self, prediction: Prediction) -> dict[str, float]:
        """Measure; a further task that a split does not define a metric of is left out."""
        values = self.heads[0](prediction)
        for head in self.heads[1:]:
            try:
                values |= head(prediction)
            except DataError:
                continue
        return values


def make_evaluator(config: ComponentConfig, graph: GraphManifest) -> Evaluator:
    """Build the evaluator of a recipe (`recipe.evaluate.evaluator`) for a graph; `auto` is resolved.

    Raises RecipeError: the metric does not fit the task; DataError: the data set names a metric that nobody knows.
    """
    return SeveralTasks(config, graph) if graph.heads else single_evaluator(config, graph)
