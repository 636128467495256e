"""Vectors of registered models that are features of a recipe, made as a task of the flow that wants them."""

from __future__ import annotations

from typing import Protocol

from prefect import task
from prefect.cache_policies import NO_CACHE

from configs.schema import Recipe
from flows.pipeline.shards import make_map_shards
from flows.records.tables import stage_text
from flows.terminal.progress import RunListener
from tasks.calls import StageRecord
from tasks.publish.vectors import provide_vectors
from tasks.storage.home import Home
from tasks.storage.outcomes import VECTORS


class Use(Protocol):
    """Whoever reads vectors."""

    recipe: Recipe
    home: Home

    @property
    def listener(self) -> RunListener:
        """Who hears how it goes."""


@task(name=VECTORS, task_run_name=VECTORS, persist_result=False, cache_policy=NO_CACHE)
def make_vectors(use: Use) -> None:
    """Make the vectors that features are taken from, as far as the home lacks them."""
    use.listener.begin(VECTORS)
    shards = make_map_shards(use.recipe, use.home)
    for outcome in provide_vectors(use.recipe, use.home, use.listener, shards):
        use.listener.end(VECTORS, f"{stage_text(StageRecord.of(outcome))}, of {outcome.manifest.recipe}")
