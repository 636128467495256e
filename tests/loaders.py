"""Loaders by name, for tests."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from configs.registry import LOADERS
from models.base import GraphModel
from tasks.sampling.rows.features import FeatureSource
from tasks.storage.graph_store import GraphStore
from tasks.train.loaders.base import TrainingData

_DATA = {field.name for field in fields(TrainingData)}


def make_loader(
    name: str, store: GraphStore, features: FeatureSource | None = None, model: GraphModel | None = None, **options: Any
) -> Any:
    features = features or FeatureSource.open(store, edges=False)
    others = {key: options.pop(key) for key in _DATA & options.keys()}
    data = TrainingData.of(model, store, features, **others) if model else TrainingData(store, features, **others)
    return LOADERS.create(LOADERS.config({"name": name, **options}), data)
