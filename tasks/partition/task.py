"""The partition stage as a Prefect task."""

from __future__ import annotations

from typing import Any

from prefect import task
from prefect.cache_policies import CacheKeyFnPolicy

from tasks.calls import call_stage
from tasks.task_options import run_key


@task(
    name="partition",
    task_run_name="partition",
    persist_result=True,
    result_serializer="json",
    cache_policy=CacheKeyFnPolicy(cache_key_fn=run_key),
)
def partition(recipe: dict[str, Any], home: str, parents: dict[str, str], force: bool = False) -> dict[str, Any]:
    """Split the graph and reorder its nodes so that a part is contiguous; returns `tasks.calls.stage_record`."""
    return call_stage("partition", recipe, home, parents, force=force)
