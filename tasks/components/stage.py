"""The components stage: which weakly connected components stay."""

from __future__ import annotations

from configs.base import cache_view
from tasks.stage import Stage, build_of
from tasks.storage.manifests import GraphManifest

STAGE: Stage[GraphManifest] = Stage(
    "components",
    1,
    GraphManifest,
    ("preprocess",),
    lambda recipe: cache_view(recipe.components),
    build_of("components"),
)
