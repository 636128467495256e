"""The stages as Prefect tasks, and when a retry of one helps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.states import get_state_exception

from configs.errors import UserError
from tasks.calls import StageRecord

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


def is_passing(_task: Any, _run: Any, state: Any) -> bool:
    """Whether a failed task should be tried again: the network or a server was away, nothing else."""
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


def _stage_task(name: str) -> Task[[Callable[[], StageRecord]], StageRecord]:
    """Return the task of a stage; it is given `tasks.calls.call_stage` with its arguments."""

    def run(call: Callable[[], StageRecord]) -> StageRecord:
        return call()

    run.__qualname__ = name  # Prefect tells tasks apart by it and by their code, which is the same
    return task(
        name=name,
        description=_DESCRIPTIONS[name],
        task_run_name=name,
        # No result of a task is kept: a run that starts again finds its artifacts, which are verified.
        persist_result=False,
        cache_policy=NO_CACHE,
        retries=2 if name in _USE_NETWORK else 0,
        retry_delay_seconds=[5, 30],
        retry_condition_fn=is_passing,
    )(run)


TASKS = {name: _stage_task(name) for name in _DESCRIPTIONS}
