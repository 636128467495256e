"""What the stages' Prefect tasks have in common: when a retry helps, and when a stored result may be used again."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from configs.errors import UserError

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
