"""When a Prefect task is tried again."""

from __future__ import annotations

import pytest
import requests

from configs.errors import DataError, RecipeError, StageError


def _raised(error: Exception, cause: Exception | None = None) -> Exception:
    try:
        raise error from cause
    except Exception as caught:
        return caught


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (requests.ConnectionError("away"), True),
        (requests.exceptions.ChunkedEncodingError("cut"), True),
        (TimeoutError("slow"), True),
        (_raised(StageError("the server is away"), requests.ConnectionError("refused")), True),
        (StageError("a rank died"), False),
        (RecipeError("no such option"), False),
        (_raised(DataError("cannot be downloaded: wrong name"), requests.ConnectionError("404")), False),
        (ValueError("bug"), False),
        (MemoryError(), False),
        (None, False),
    ],
)
def test_only_what_passes_by_itself_is_tried_again(error: Exception | None, passes: bool) -> None:
    from tasks.prefect_tasks import passes_by_itself

    assert passes_by_itself(error) is passes


def test_tasks_are_told_apart_and_only_those_that_use_the_network_are_tried_again() -> None:
    from tasks.prefect_tasks import TASKS, is_passing

    assert len({task.task_key for task in TASKS.values()}) == len(TASKS)
    for name, task in TASKS.items():
        assert (task.name, task.task_run_name, task.persist_result) == (name, name, False)
        assert task.description
        assert task.retries == (2 if name in ("ingest", "publish") else 0)
        assert task.retry_condition_fn is is_passing
