"""The preprocess stage: what of a recipe decides the graph's arrays."""

from __future__ import annotations

from typing import Any

from configs.base import cache_view
from configs.schema import Recipe
from tasks.preprocess.transforms.configs import from_models
from tasks.stage import Stage, build_of
from tasks.storage.home_files.source_digests import SourceDigests
from tasks.storage.manifests import GraphManifest


def config(recipe: Recipe) -> dict[str, Any]:
    """Everything in the recipe's `preprocess` section but how the work is spread, and as of when.

    A registered model that features come from is named with its version.
    """
    for one in from_models(recipe.preprocess.transforms):
        # A key made of `@champion` would find what an earlier champion's vectors became.
        assert not one.is_open, f"{one.model}: no version was taken (tasks.publish.vectors.with_versions)"
    near = recipe.neighbors
    return cache_view(recipe.preprocess) | ({"neighbors": cache_view(near)} if near else {}) | snapshot_view(recipe)


def source(recipe: Recipe, digests: SourceDigests) -> dict[str, Any]:
    """Return what identifies the files of a model that encodes texts, if one does. Raises RecipeError: none there."""
    if getattr(recipe.preprocess.texts, "model", None) is None:
        return {}
    from tasks.preprocess.texts.model_files import model_digest

    return {"texts": model_digest(recipe.preprocess.texts, digests)}


def snapshot_view(recipe: Recipe) -> dict[str, Any]:
    """Return the options that decide what a snapshot holds, for the stage's key; empty without a moment."""
    options = recipe.snapshot
    if recipe.time_moment is None:
        return {}
    view = {"as_of": recipe.time_moment, "unit": options.unit, "split": options.split}
    if options.split == "time":
        view |= {name: getattr(options, name) for name in ("train", "valid", "test", "seed")}
    return {"snapshot": view}


STAGE: Stage[GraphManifest] = Stage(
    "preprocess", 7, GraphManifest, ("ingest",), config, build_of("preprocess"), source=source
)
