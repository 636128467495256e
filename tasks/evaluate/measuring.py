"""By what a split is measured beside the metric that judges a model, and what the model is compared with."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from configs.errors import DataError
from configs.registry import EVALUATORS
from tasks.evaluate.controls.features import ControlledGraph
from tasks.evaluate.controls.several import SeveralControls
from tasks.evaluate.controls.suite import Controls
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.making import make_evaluator
from tasks.evaluators.prediction import Prediction
from tasks.evaluators.several import HeadEvaluator, SeveralTasks
from tasks.inference.opened import Opened
from tasks.storage.heads import head_views
from tasks.storage.manifests import GraphManifest

_SECONDARY: dict[str, tuple[dict[str, Any], ...]] = {
    "multiclass": ({"name": "accuracy"}, {"name": "f1", "average": "macro"}),
    "binary": ({"name": "rocauc"}, {"name": "average_precision"}, {"name": "accuracy"}),
    "multilabel": ({"name": "rocauc"}, {"name": "average_precision"}, {"name": "f1", "average": "micro"}),
    "regression": ({"name": "rmse"}, {"name": "mae"}, {"name": "r2"}),
    "link": ({"name": "average_precision"}, {"name": "rocauc"}, {"name": "mrr"}),
    "triple": ({"name": "mrr"},),
    "ranking": (),
}
_BY_RELATION = ({"name": "rocauc"}, {"name": "pr_auc"}, {"name": "f1"}, {"name": "average_precision"})
"""Of links that are predicted by relation, as GATNE (KDD 2019) has them."""


@contextmanager
def fitted_controls(opened: Opened, work: Path) -> Iterator[Controls | SeveralControls]:
    """Fit what the model is compared with; its scratch files in `work` go with it."""
    from models.vectors.base import VectorModel

    model = opened.model
    with tempfile.TemporaryDirectory(dir=work) as scratch:
        graph = ControlledGraph(opened.store, opened.dataset, opened.ids, opened.predictor, Path(scratch))
        if opened.store.manifest.heads:
            yield SeveralControls(graph)
            return
        vectors = model if isinstance(model, VectorModel) and not model.scores_relations else None
        yield Controls(graph, opened.model.facts.out_dim, vectors)


def secondary_evaluators(graph: GraphManifest, primary: Evaluator) -> list[Evaluator]:
    """Return further metrics that cost little, beside the one that a model is judged by."""
    made: list[Evaluator] = []
    for view in head_views(graph):
        configs = (EVALUATORS.config(dict(c)) for c in _SECONDARY[view.head.task_type])
        made += [HeadEvaluator(config, graph, view) for config in configs]
    wanted = () if graph.heads else _SECONDARY[graph.task_type]
    if graph.task_type == "link" and graph.num_relations:
        wanted = _BY_RELATION
    made += [make_evaluator(EVALUATORS.config(dict(c)), graph) for c in wanted]
    for extra in made:
        extra.relations = primary.relations
    return [extra for extra in made if extra.metric != primary.metric]


def measure(evaluator: Evaluator, extras: Sequence[Evaluator], prediction: Prediction) -> dict[str, float]:
    """Return all metrics of a prediction, the evaluator's own first. Raises DataError where that is not defined."""
    values = evaluator(prediction)
    for extra in extras:
        with suppress(DataError):  # a further metric may be undefined (one class only)
            values = {**extra(prediction), **values}
    first = {evaluator.metric: values.pop(evaluator.metric)}
    if isinstance(evaluator, SeveralTasks):  # one task after the other
        tasks = [head.view.head.name for head in evaluator.heads]
        values = {name: values[name] for name in sorted(values, key=lambda one: tasks.index(one.rpartition(".")[0]))}
    return {**first, **values}
