"""Ingested data prepared for a registered model: its own `preprocess` section, its fitted transforms, one graph."""

from __future__ import annotations

from configs.schema import Recipe
from tasks.apply.model.published import Published
from tasks.calls import load_stage, mark_used
from tasks.stage import InnerListener, Parent, StageContext, run_stage, stage_key
from tasks.storage.dataset_store import DatasetStore

_STAGES = ("preprocess", "components", "partition")


def prepare_for(published: Published, recipe: Recipe, ingest: Parent, context: StageContext) -> Parent:
    """Return a partition's artifact of ingested data as the model reads it; what is there is found.

    The model's `preprocess` and `partition` sections and fitted transforms are taken, and of `recipe` the moment and
    which components stay. Raises UserError: the model cannot read such data; StageError: the disk is full, say; that
    says nothing about the model.
    """
    trained = published.recipe
    spread = {name: getattr(recipe.preprocess, name) for name in recipe.preprocess.runtime_fields}
    preprocess = trained.preprocess.model_copy(update=spread)
    as_trained = recipe.model_copy(update={"preprocess": preprocess, "partition": trained.partition})
    parents = {"ingest": ingest}
    key = stage_key(load_stage("preprocess"), as_trained, parents, context.home)
    fitted = published.recipe_for(as_trained, key, DatasetStore(ingest.folder, ingest.manifest))
    listener = InnerListener(context.listener, context.stage, f"data for {published.name}")
    for name in _STAGES:
        outcome = run_stage(
            load_stage(name), fitted, parents, context.home, listener=listener, map_shards=context.map_shards
        )
        mark_used(outcome.folder)
        parents[name] = outcome.parent
    return parents["partition"]
