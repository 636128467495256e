"""OGB's own evaluators (ogb 1.3.6), so that numbers compare with the leaderboard's.

Importing `ogb` asks a server for newer versions and pulls in DGL and PyG readers. The evaluators need neither: their
files are loaded by path, and nothing else of the package runs.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from configs.base import ComponentConfig
from configs.errors import DataError, RecipeError
from configs.registry import EVALUATORS
from tasks.evaluators import metrics
from tasks.evaluators.evaluators import Evaluator
from tasks.evaluators.prediction import Prediction
from tasks.storage.manifests import GraphManifest

_FOLDERS = {"node": "nodeproppred", "link": "linkproppred", "triple": "linkproppred", "graph": "graphproppred"}


@cache
def ogb_evaluator_class(kind: str) -> type[Any]:
    """Return OGB's `Evaluator` class for a kind of task (node, link, triple, graph) without importing the package."""
    spec = importlib.util.find_spec("ogb")
    assert spec is not None, "ogb is a requirement of graphmill"
    assert spec.submodule_search_locations, "ogb is a package"
    path = Path(spec.submodule_search_locations[0]) / _FOLDERS[kind] / "evaluate.py"
    file_spec = importlib.util.spec_from_file_location(f"_graphmill_ogb_{kind}", path)
    assert file_spec is not None
    assert file_spec.loader is not None
    module = importlib.util.module_from_spec(file_spec)
    file_spec.loader.exec_module(module)
    evaluator: type[Any] = module.Evaluator
    return evaluator


@EVALUATORS.register("ogb")
class Ogb(Evaluator):
    """OGB's evaluator of the data set."""

    task_types = frozenset({"multiclass", "binary", "multilabel", "regression", "link", "triple"})

    def __init__(self, config: ComponentConfig, graph: GraphManifest) -> None:
        """Raises RecipeError for a data set that OGB does not list; DataError for ogbg-code2's sequences."""
        super().__init__(config, graph)
        if not graph.ogb_name:
            raise RecipeError(
                f"evaluate.evaluator=ogb works for OGB data sets only, {graph.dataset} is none; leave it at auto"
            )
        self._ogb = ogb_evaluator_class(graph.task)(graph.ogb_name)
        self._kind: str = self._ogb.eval_metric
        if self._kind == "F1":
            raise DataError(f"{graph.ogb_name} predicts sequences of words, which no model here does")
        self.metric = "accuracy" if self._kind == "acc" else self._kind
        self.higher_is_better = self._kind != "rmse"

    @property
    def names(self) -> Sequence[str]:
        """Names of all that it measures."""
        return (
            metrics.names_with_mrr(of_triples=self.graph.split_rows.are_triples)
            if self._kind == "mrr"
            else super().names
        )

    def __call__(self, prediction: Prediction) -> dict[str, float]:
        """What OGB prints; `acc` is called `accuracy`."""
        if prediction.ranks is not None:
            # Its MRR, of ranks among the candidates that it gives.
            return metrics.mrr_of_triples(prediction.true_ranks())
        if self._kind == "mrr":
            # OGB's NumPy branch calls sum(dim=1), which NumPy has not; this is its torch branch (same tie rule).
            return metrics.mrr(*prediction.pairs())
        if prediction.positive is not None:
            positive, negative = prediction.pairs()
            given = {"y_pred_pos": positive, "y_pred_neg": negative.ravel()}
        elif self._kind == "acc":
            label, predicted = prediction.classes()
            given = {"y_true": label[:, None], "y_pred": predicted[:, None]}
        else:
            columns, score = prediction.columns()
            given = {"y_true": columns, "y_pred": score}
        try:
            value = self._measured(given)
        except RuntimeError as error:
            raise DataError(f"{self.graph.ogb_name}: OGB's evaluator says: {error}") from error
        return {self.metric: float(value)}

    def _measured(self, given: dict[str, Any]) -> Any:
        """Return the metric.

        scikit-learn, which OGB calls, asks polars for classes as soon as it is among the modules, though another thread
        (MLflow's) may still be importing it: then that is waited for, and OGB asked again.
        """
        try:
            return self._ogb.eval(given)[self._kind]
        except AttributeError:
            if "polars" in sys.modules:
                import polars  # noqa: F401
            return self._ogb.eval(given)[self._kind]
