"""The partition stage: which node is in which part."""

from __future__ import annotations

from configs.base import cache_view
from tasks.stage import Stage, build_of
from tasks.storage.manifests import PartitionManifest

STAGE: Stage[PartitionManifest] = Stage(
    "partition",
    3,
    PartitionManifest,
    ("components",),
    lambda recipe: cache_view(recipe.partition),
    build_of("partition"),
)
