"""The stages as Prefect tasks, when a retry of one helps, and when its stored result may be used again.

A task calls its stage by name (`tasks.calls`), so that importing this module loads none of them.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from prefect import Task, task
from prefect.cache_policies import CacheKeyFnPolicy

from configs.errors import UserError
from tasks.calls import call_stage

_DESCRIPTIONS = {
    "ingest": "Source data to verified Parquet shards.",
    "preprocess": "Parquet shards to a graph in memory-mapped arrays.",
    "components": "Keep the connected components that the recipe asks for.",
    "partition": "Split the graph and reorder its nodes so that a part is contiguous.",
    "train": "Train the model in supervised workers; an interrupted training resumes.",
    "evaluate": "Measure the best checkpoint and write predictions.",
    "publish": "Log, register and report the outcome.",
}
_USE_NETWORK = ("ingest", "publish")

# Names of errors that pass by themselves, from libraries that this module must not import.
_PASSING = {
    "ConnectionError",
    "ConnectError",
    "ConnectTimeout",
    "ReadTimeout",
    "Timeout",
    "TimeoutError",
    "ChunkedEncodingError",
    "ProtocolError",
    "IncompleteRead",
    "MaxRetryError",
    "RemoteDisconnected",
    "gaierror",
}


def is_passing(task: Any, task_run: Any, state: Any) -> bool:
    """Whether a failed task should be tried again: the network or a server was away, nothing else."""
    from prefect.states import get_state_exception

    return passes_by_itself(get_state_exception(state))


def passes_by_itself(error: Any) -> bool:
    """Whether the error or one of its causes is of the kind that a later attempt may not meet."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, UserError):
            return False
        if any(cls.__name__ in _PASSING for cls in type(error).__mro__):
            return True
        error = error.__cause__ or error.__context__
    return False


def run_key(context: Any, arguments: dict[str, Any]) -> str | None:
    """Name a task's stored result by flow run and arguments.

    A retried flow run skips what it completed; every other run asks the artifact store, which verifies what it finds.
    """
    run_id = getattr(getattr(context, "task_run", None), "flow_run_id", None)
    if run_id is None:
        return None
    text = json.dumps({"task": context.task.name, **arguments}, sort_keys=True, default=str)
    return f"{run_id}-{context.task.name}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _stage_task(name: str) -> Task[..., dict[str, Any]]:
    """Return the task of a stage: recipe, home, parents' keys and `force` to `tasks.calls.stage_record`."""

    def run(recipe: dict[str, Any], home: str, parents: dict[str, str], force: bool = False) -> dict[str, Any]:
        return call_stage(name, recipe, home, parents, force=force)

    run.__qualname__ = name  # Prefect tells tasks apart by it and by their code, which is the same
    return task(
        name=name,
        description=_DESCRIPTIONS[name],
        task_run_name=name,
        persist_result=True,
        result_serializer="json",
        cache_policy=CacheKeyFnPolicy(cache_key_fn=run_key),
        retries=2 if name in _USE_NETWORK else 0,
        retry_delay_seconds=[5, 30],
        retry_condition_fn=is_passing,
    )(run)


TASKS = {name: _stage_task(name) for name in _DESCRIPTIONS}
