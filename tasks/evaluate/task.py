"""The evaluate stage as a Prefect task."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import CacheKeyFnPolicy

from tasks.calls import call_stage
from tasks.task_options import run_key


@task(
    name="evaluate",
    task_run_name="evaluate",
    persist_result=True,
    result_serializer="json",
    cache_policy=CacheKeyFnPolicy(cache_key_fn=run_key),
)
def evaluate(recipe: dict[str, Any], home: str, parents: dict[str, str], force: bool = False) -> dict[str, Any]:
    """Measure the best checkpoint and write predictions; returns `tasks.calls.stage_record`."""
    return call_stage("evaluate", recipe, home, parents, force=force)
