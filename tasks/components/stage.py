"""The components stage: which weakly connected components stay."""

from __future__ import annotations

from typing import Any

from configs.base import cache_view
from configs.schema import Recipe
from tasks.stage import Parent, Stage, StageContext
from tasks.storage.manifests import GraphManifest


def config(recipe: Recipe) -> dict[str, Any]:
    """The recipe's `components` section."""
    return cache_view(recipe.components)


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Do the work of `tasks.components.build`; imported here, for a stage that is cached needs none of it."""
    from tasks.components import build as work

    return work.build(context, recipe, parents)


STAGE: Stage[GraphManifest] = Stage("components", 1, GraphManifest, ("preprocess",), config, build)
