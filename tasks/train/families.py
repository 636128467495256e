"""Families of models: each has a training of its own between the same checkpoints, journal and launch.

A family is a module, imported when the first of its models is trained, with `announce`, which refuses what cannot work
before any process starts, and says what will run; `train`, which trains one rank to the end, from the last checkpoint
if there is one; and `size`: how large the model is, in words, and a training's peak memory on this machine's CPU in
bytes, or None where that is not known before it begins.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from configs.families.row_training import (
    FactorTrainConfig,
    KnowledgeTrainConfig,
    LayoutTrainConfig,
    MultiplexTrainConfig,
    TableTrainConfig,
)
from configs.registry import MODELS
from configs.training import RelationalTrainConfig, TrainBase, TrainConfig

if TYPE_CHECKING:
    from configs.schema import Recipe
    from tasks.storage.manifests import GraphManifest
    from tasks.train.job import AnyJob


_ROOMS = {
    TrainConfig.family: "gradients",
    RelationalTrainConfig.family: "gradients",
    TableTrainConfig.family: "tables",
    KnowledgeTrainConfig.family: "knowledge",
    MultiplexTrainConfig.family: "multiplex",
    FactorTrainConfig.family: "factors",
    LayoutTrainConfig.family: "layout",
}
"""Folder of each family."""


def family_of(train: TrainBase) -> Any:
    """Return the family, a module, whose section a recipe's `train` is."""
    return importlib.import_module(f"tasks.train.{_ROOMS[train.family]}.family")


def trainings(job: AnyJob) -> Sequence[AnyJob]:
    """Return the trainings that make up a job, in order: several with self-training.

    The last one works in the job's own folder.
    """
    if not isinstance(job.train, TrainConfig):
        return [job]
    from tasks.train.gradients import family as gradients

    return gradients.trainings(cast(Any, job))


def check_options(recipe: Recipe) -> None:
    """Refuse options that cannot train, whatever the graph, before hours go into preparing one. Raises RecipeError."""
    if isinstance(recipe.train, TrainConfig):
        from tasks.train.gradients import family as gradients

        gradients.check_options(recipe)


def unread_edge_features(recipe: Recipe, manifest: GraphManifest) -> str | None:
    """Say that edges carry features which the model does not read; None: it does, there are none, or it was told so."""
    kinds = {"numbers": manifest.edge_feature_dim, "categories": len(manifest.edge_categories)}
    there = ", ".join(f"{kind}: {count:,}" for kind, count in kinds.items() if count)
    if not there or recipe.is_layout or recipe.model.name not in MODELS.names():
        return None
    reads = getattr(MODELS.get(recipe.model.name), "reads_edge_features", None)
    if not getattr(recipe.model, "edge_features", True) or (reads is not None and reads(recipe.model)):
        return None
    what = "messages are what they" if manifest.split_rows.are_edges else "the result is what it"
    return (
        f"edges carry features ({there}), and model.name={recipe.model.name} reads none of them: {what} "
        "would be without; graphsage, gcn, gat, gatv2, gin and deepgcn read them"
    )
