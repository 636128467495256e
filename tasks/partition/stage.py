"""The partition stage: which node is in which part."""

from __future__ import annotations

from typing import Any

from configs.base import cache_view
from configs.schema import Recipe
from tasks.stage import Parent, Stage, StageContext
from tasks.storage.manifests import PartitionManifest


def config(recipe: Recipe) -> dict[str, Any]:
    """The recipe's `partition` section."""
    return cache_view(recipe.partition)


def build(context: StageContext, recipe: Recipe, parents: dict[str, Parent]) -> dict[str, Any]:
    """Do the work of `tasks.partition.build`; imported here, for a stage that is cached needs none of it."""
    from tasks.partition import build as work

    return work.build(context, recipe, parents)


STAGE: Stage[PartitionManifest] = Stage("partition", 3, PartitionManifest, ("components",), config, build)
