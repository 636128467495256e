"""Makes the evaluator that a recipe names."""

from __future__ import annotations

from configs.base import ComponentConfig
from tasks.evaluators.evaluators import Evaluator, single_evaluator
from tasks.evaluators.several import SeveralTasks
from tasks.storage.manifests import GraphManifest


def make_evaluator(config: ComponentConfig, graph: GraphManifest) -> Evaluator:
    """Build the evaluator of a recipe (`recipe.evaluate.evaluator`) for a graph; `auto` is resolved.

    Raises:
        RecipeError: the metric does not fit the task.
        DataError: the data set names a metric that nobody knows.
    """
    return SeveralTasks(config, graph) if graph.heads else single_evaluator(config, graph)
