"""An MLflow run is of one flow run: it ends as that does, and no other one touches it."""

from __future__ import annotations

import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flows.backfill.actions import MAX_STARTS, settle_tracking, tracked_state
from flows.backfill.spec import Backfill
from flows.pipeline.tracking import close_tracking, end_killed_tracking, end_tracking, log_cached_publication
from flows.records.run_record import RunRecord, now_text
from flows.terminal.progress import RunListener
from tasks.processes import ending
from tasks.processes.run_context import RunContext, publishing_from
from tasks.publish.stage import STAGE
from tasks.publish.tracking import mlflow_store
from tasks.publish.tracking.live import LiveTracker
from tasks.publish.tracking.mlflow_registry import MlflowRegistry
from tasks.publish.tracking.mlflow_store import FLOW_RUN, TRAINED_IN, Tracker
from tasks.stage import run_stage
from tasks.storage.home import Home
from tests.publish.test_stage import finished_run, recipe
from tests.support import stage_entry


def opened(home: Home, flow_run: str, *, trains: bool = True) -> Tracker:
    tracker = Tracker(home, "graphmill")
    tracker.open_run("key-1", "demo", RunContext(flow_run, f"http://prefect/{flow_run}"), trains=trains)
    return tracker


def seen(tracker: Tracker, run_id: str) -> tuple[Any, ...]:
    """All that would tell that somebody has touched the run."""
    run = tracker.client.get_run(run_id)
    tags = {key: value for key, value in run.data.tags.items() if not key.startswith("mlflow.log")}
    return run.info.status, run.info.start_time, run.info.end_time, tags, run.data.metrics, run.data.params


def status(home: Home, run_id: str) -> str:
    return str(MlflowRegistry(home).client.get_run(run_id).info.status)


def test_a_flow_run_that_finds_its_training_done_has_a_run_of_its_own(tracked_home: Home) -> None:
    first = opened(tracked_home, "flow-1")
    first.close("FINISHED")
    before = seen(first, first.run_id)
    for night in ("flow-2", "flow-3"):
        tracker = opened(tracked_home, night, trains=False)
        assert tracker.run_id != first.run_id
        run = tracker.client.get_run(tracker.run_id)
        assert run.data.tags[TRAINED_IN] == first.run_id
        assert f"/runs/{first.run_id}?workflowType=machine_learning)" in run.data.tags["mlflow.note.content"]
        tracker.close("FAILED")
        retried = opened(tracked_home, night, trains=False)
        assert retried.run_id == tracker.run_id, "a retry is the same flow run"
        retried.close("FINISHED")
    assert seen(first, first.run_id) == before
    again = opened(tracked_home, "flow-4")  # forced
    assert TRAINED_IN not in again.client.get_run(again.run_id).data.tags
    assert seen(first, first.run_id) == before


@pytest.mark.parametrize(("left", "resumed"), [("KILLED", True), ("FAILED", True), ("FINISHED", False), (None, False)])
def test_only_an_interrupted_training_is_taken_up_in_its_run(tracked_home: Home, left: Any, resumed: bool) -> None:
    first = opened(tracked_home, "flow-1")
    first.close(left)  # None: it runs
    assert (opened(tracked_home, "flow-2").run_id == first.run_id) == resumed


def test_publishing_what_another_night_trained(tmp_path: Path, tracked_home: Home) -> None:
    parents = finished_run(tmp_path)
    with publishing_from(RunContext("night-1", "url")):
        first = run_stage(STAGE, recipe(), parents, tracked_home).manifest
    tracker = Tracker(tracked_home, "graphmill")
    before = seen(tracker, first.mlflow_run_id)
    with publishing_from(RunContext("night-2", "url")):
        second = run_stage(STAGE, recipe(), parents, tracked_home, force=True).manifest
    assert second.mlflow_run_id != first.mlflow_run_id
    assert second.model_version == first.model_version == "1", "the same weights are one version"
    assert seen(tracker, first.mlflow_run_id) == before
    run = tracker.client.get_run(second.mlflow_run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["final/valid/accuracy"] == 0.75
    assert run.data.tags[TRAINED_IN] == first.mlflow_run_id
    assert len(tracker.client.get_metric_history(second.mlflow_run_id, "loss")) == 3


@pytest.mark.parametrize("deployment", ["d-nightly", ""])
def test_a_night_that_finds_everything_is_a_run_too(
    tmp_path: Path, tracked_home: Home, monkeypatch: pytest.MonkeyPatch, deployment: str
) -> None:
    parents = finished_run(tmp_path)
    with publishing_from(RunContext("night-1", "url")):
        first = run_stage(STAGE, recipe(), parents, tracked_home).manifest
    tracker = Tracker(tracked_home, "graphmill")
    before = seen(tracker, first.mlflow_run_id)
    stages = {name: stage_entry(name, key=parent.manifest.key) for name, parent in parents.items()}
    record = RunRecord(
        id="night-2",
        recipe="demo",
        started_at=now_text(),
        deployment=deployment,
        stages={**stages, "publish": stage_entry("publish", key=first.key, status="cached")},
        mlflow_run_id=first.mlflow_run_id,
    )
    monkeypatch.setattr("flows.pipeline.tracking.load_parents", lambda *_: parents)
    with publishing_from(RunContext("night-2", "url")):
        log_cached_publication(tracked_home, recipe(), record)
        record.mlflow_run_id = first.mlflow_run_id
        log_cached_publication(tracked_home, recipe(), record)  # a retry
    assert seen(tracker, first.mlflow_run_id) == before
    runs = tracker.client.search_runs([tracker.experiment_id])
    assert len(runs) == (2 if deployment else 1), "a command typed again has the run that is there"
    if deployment:
        run = tracker.client.get_run(record.mlflow_run_id)
        assert run.info.status == "FINISHED"
        assert run.data.metrics["final/valid/accuracy"] == 0.75
        assert run.data.tags[FLOW_RUN] == "night-2"
        assert run.data.tags["graphmill.published_in"] == first.mlflow_run_id


def test_the_run_of_a_killed_process_has_failed(tracked_home: Home) -> None:
    running, done = opened(tracked_home, "dead"), Tracker(tracked_home, "graphmill")
    done.open_run("key-2", "demo", RunContext("dead", "url"))
    done.close("FINISHED")
    other = Tracker(tracked_home, "graphmill")
    other.open_run("key-3", "demo", RunContext("alive", "url"))
    record = RunRecord(
        id="dead",
        recipe="demo",
        started_at=now_text(),
        stages={"partition": stage_entry("partition")},
        config={"tracking": {"experiment": "graphmill"}},
    )
    end_killed_tracking(tracked_home, record)
    found = [status(tracked_home, tracker.run_id) for tracker in (running, done, other)]
    assert found == ["FAILED", "FINISHED", "RUNNING"]


def test_burying_makes_no_database(home: Home) -> None:
    mlflow_store.bury(home, "graphmill", "dead")
    assert not home.mlflow.exists()


@pytest.mark.parametrize("ends_as", ["KILLED", "FAILED", "FINISHED"])
def test_a_run_whose_training_is_over_ends_as_its_flow_run_does(tracked_home: Home, ends_as: Any) -> None:
    listener, context = RunListener(None), RunContext("flow-1", "url")
    listener.tracker = LiveTracker(tracked_home, recipe(), "key-1", context, lambda text: None)
    close_tracking(listener)
    assert status(tracked_home, listener.tracked_run) == "RUNNING"
    end_tracking(listener, tracked_home, ends_as)
    assert status(tracked_home, listener.tracked_run) == ends_as


def test_what_never_began_is_not_said_to_have_ended(tracked_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "is_ending", lambda: True)
    live = LiveTracker(tracked_home, recipe(), "key-1", RunContext("flow-1", "url"), lambda text: None)
    live.close("KILLED")
    live._thread.join(60)
    tracker = Tracker(tracked_home, "graphmill")
    assert tracker.client.search_runs([tracker.experiment_id]) == []


def flow_run(state: str, starts: int = MAX_STARTS) -> Any:
    now = datetime.datetime.now(datetime.UTC)
    return SimpleNamespace(
        state_type=SimpleNamespace(value=state), run_count=starts, state=SimpleNamespace(timestamp=now)
    )


BACKFILL = Backfill(id="b", deployment="d", complete=True)


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([], "FINISHED"),  # all had their results
        (["COMPLETED", "COMPLETED"], "FINISHED"),
        (["COMPLETED", "RUNNING"], "RUNNING"),
        (["FAILED", "SCHEDULED"], "RUNNING"),
        (["COMPLETED", "FAILED", "CANCELLED"], "FAILED"),
        (["CRASHED"], "FAILED"),
        (["COMPLETED", "CANCELLED"], "KILLED"),
    ],
)
def test_a_backfill_s_run_is_as_its_partitions_are(states: list[str], expected: str) -> None:
    assert tracked_state(BACKFILL, [flow_run(state) for state in states]) == expected


def test_a_backfill_has_not_ended_while_a_run_may_start_again_or_is_yet_to_be_made() -> None:
    assert tracked_state(BACKFILL, [flow_run("CRASHED", starts=1)]) == "RUNNING"
    unfinished = BACKFILL.model_copy(update={"complete": False})
    assert tracked_state(unfinished, [flow_run("COMPLETED")]) == "RUNNING"


def test_a_backfill_s_run_follows_it(tracked_home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = mlflow_store.open_parent(tracked_home, "graphmill", "b", {})
    assert mlflow_store.open_parent(tracked_home, "graphmill", "b", {}) == parent
    kept = {"b": BACKFILL.model_copy(update={"mlflow_run_id": parent})}
    store = SimpleNamespace(
        runs_of=lambda client, backfill: {str(n): flow_run(state) for n, state in enumerate(client)},
        get=lambda client, name: kept[name],
        save=lambda client, backfill: kept.update(b=backfill),
    )
    monkeypatch.setattr("flows.backfill.actions.store", store)
    for states, expected in (
        (["RUNNING"], "RUNNING"),
        (["FAILED"], "FAILED"),
        (["RUNNING"], "RUNNING"),  # retry-failed
        (["COMPLETED"], "FINISHED"),
    ):
        settle_tracking(states, tracked_home, kept["b"])
        assert (status(tracked_home, parent), kept["b"].mlflow_state) == (expected, expected)
