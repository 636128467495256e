"""The train stage as a Prefect task."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import CacheKeyFnPolicy

from tasks.calls import call_stage
from tasks.task_options import run_key


@task(
    name="train",
    task_run_name="train",
    persist_result=True,
    result_serializer="json",
    cache_policy=CacheKeyFnPolicy(cache_key_fn=run_key),
)
def train(recipe: dict[str, Any], home: str, parents: dict[str, str], force: bool = False) -> dict[str, Any]:
    """Train the model in supervised workers; an interrupted training resumes; returns `tasks.calls.stage_record`."""
    return call_stage("train", recipe, home, parents, force=force)
