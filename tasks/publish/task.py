"""The publish stage as a Prefect task."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import CacheKeyFnPolicy

from tasks.calls import call_stage
from tasks.task_options import is_passing, run_key


@task(
    name="publish",
    task_run_name="publish",
    persist_result=True,
    result_serializer="json",
    cache_policy=CacheKeyFnPolicy(cache_key_fn=run_key),
    retries=2,
    retry_delay_seconds=[5, 30],
    retry_condition_fn=is_passing,
)
def publish(recipe: dict[str, Any], home: str, parents: dict[str, str], force: bool = False) -> dict[str, Any]:
    """Log, register and report the outcome; returns `tasks.calls.stage_record`."""
    return call_stage("publish", recipe, home, parents, force=force)
