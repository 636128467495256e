"""Finds the kind of task that a manifest is of: a module or package here with `KIND`, imported when it is asked for."""

from __future__ import annotations

import importlib
import pkgutil
from typing import TYPE_CHECKING, Any

from configs.errors import DataError
from tasks import kinds
from tasks.storage.manifests import TaskManifest

if TYPE_CHECKING:
    from models.base import GraphModel
    from tasks.evaluators.prediction import Prediction
    from tasks.kinds.base import Kind


def kind_of(manifest: TaskManifest) -> Kind:
    """Return the kind of a data set or a graph. Raises DataError: there is none of that name."""
    return kind_named(manifest.kind)


def kind_named(name: str) -> Kind:
    """Return a kind by its name, see `kind_of`."""
    modules = {module.name for module in pkgutil.iter_modules(kinds.__path__)}
    kind: Kind | None = None
    if name in modules:
        kind = getattr(importlib.import_module(f"{kinds.__name__}.{name}"), "KIND", None)
    if kind is None:
        raise DataError(f"there is no kind of task {name!r}")
    return kind


def predict(predictor: Any, model: GraphModel, split: str) -> Prediction:
    """Score a split by a `Predictor`; rows come in the order of the split's array. Scores are raw outputs (logits).

    Raises DataError: the graph has no such split.
    """
    kind = kind_of(predictor.store.manifest)
    return kind.score(predictor, model, kind.rows(predictor, split))
