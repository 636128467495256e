"""When a Prefect task is tried again, and when its stored result counts."""

from __future__ import annotations

from types import SimpleNamespace

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


def test_results_count_within_one_flow_run_and_for_the_same_arguments() -> None:
    from tasks.prefect_tasks import run_key

    def key(run: str | None, name: str = "ingest", **arguments: object) -> str | None:
        context = SimpleNamespace(task_run=SimpleNamespace(flow_run_id=run), task=SimpleNamespace(name=name))
        return run_key(context, arguments)

    first = key("r1", recipe={"a": 1, "b": 2}, parents={})
    assert first == key("r1", parents={}, recipe={"b": 2, "a": 1})
    others = {
        key("r2", recipe={"a": 1, "b": 2}, parents={}),
        key("r1", recipe={"a": 2, "b": 2}, parents={}),
        key("r1", name="train", recipe={"a": 1, "b": 2}, parents={}),
        key("r1", recipe={"a": 1, "b": 2}, parents={"ingest": "k"}),
    }
    assert len(others | {first}) == 5
    assert key(None, recipe={}) is None


def test_tasks_are_told_apart_and_only_those_that_use_the_network_are_tried_again() -> None:
    from tasks.prefect_tasks import TASKS, is_passing

    assert len({task.task_key for task in TASKS.values()}) == len(TASKS)
    for name, task in TASKS.items():
        assert (task.name, task.task_run_name, task.persist_result) == (name, name, True)
        assert task.description
        assert task.retries == (2 if name in ("ingest", "publish") else 0)
        assert task.retry_condition_fn is is_passing
