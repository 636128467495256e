from __future__ import annotations

import json
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from configs.errors import IntegrityError, StageError
from tasks.processes.run_context import RunContext
from tasks.publish.gate.rules import Candidate, Compared, Decision, decide
from tasks.publish.tracking import live as live_tracking
from tasks.publish.tracking import mlflow_registry as tracking
from tasks.publish.tracking.live import LiveTracker, system_sampler
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.model_registry import ModelRegistry
from tasks.publish.tracking.records import flatten, metric_key, read_records, step_of, thin, unique_by_step, values_of
from tasks.publish.tracking.registered import find_version
from tasks.publish.tracking.store_uris import how_to_open, public_uri
from tasks.publish.tracking.version_tags import gate_tags
from tasks.storage.home import Home


@pytest.fixture
def tracker(tracked_home: Home) -> Tracker:
    tracker = Tracker(tracked_home, "test")
    tracker.open_run("key-1", "recipe")
    return tracker


def history(tracker: Tracker, key: str) -> list[tuple[int, float]]:
    return sorted((p.step, p.value) for p in tracker.client.get_metric_history(tracker.run_id, key))


def test_a_second_opening_resumes_the_run(tracked_home: Home) -> None:
    first = Tracker(tracked_home, "test")
    assert not first.open_run("key-1", "recipe", RunContext("flow-1", "http://prefect/flow-1"))
    first.close("KILLED")
    second = Tracker(tracked_home, "test")
    assert second.open_run("key-1", "recipe", RunContext("flow-2", "http://prefect/flow-2"))
    assert second.run_id == first.run_id
    run = second.client.get_run(second.run_id)
    assert run.info.status == "RUNNING"
    assert run.data.tags["prefect.flow_run_id"] == "flow-2"
    assert run.data.tags["prefect.flow_run_url"] == "http://prefect/flow-2"
    other = Tracker(tracked_home, "test")
    assert not other.open_run("key-2", "recipe")
    assert not other.open_run("key-1", "another-recipe")
    second.close("FINISHED")
    assert second.client.get_run(second.run_id).info.status == "FINISHED"


def test_recorded_metrics_arrive_by_step_and_only_once(tracker: Tracker) -> None:
    for step in range(5):
        tracker.record({"step": step, "epoch": 0, "seconds": 0.1 * step, "loss": 1.0 / (step + 1)})
    tracker.flush()
    tracker.flush()
    assert history(tracker, "loss") == [(s, pytest.approx(1.0 / (s + 1))) for s in range(5)]
    records = [{"step": s, "seconds": float(s), "loss": 9.0, "valid/hits@20": 0.1 * s} for s in range(8)]
    assert tracker.log_curves(records, 1000.0) == 3 + 8  # steps 0-4 of the loss were there
    assert tracker.log_curves(records, 1000.0) == 0
    assert [s for s, _ in history(tracker, "loss")] == list(range(8))
    assert len(history(tracker, "valid/hits_at_20")) == 8
    point = max(tracker.client.get_metric_history(tracker.run_id, "loss"), key=lambda p: p.step)
    assert point.timestamp == 1007 * 1000


def test_many_metrics_go_in_batches(tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    log_batch = tracker.client.log_batch

    def counting(run_id: str, metrics: Any = (), **rest: Any) -> Any:
        calls.append(len(metrics))
        return log_batch(run_id, metrics=metrics, **rest)

    monkeypatch.setattr(tracker.client, "log_batch", counting)
    for step in range(1203):
        tracker.record({"step": step, "a": 1.0, "b": 2.0})
    tracker.close(None)
    assert sum(calls) == 2406
    assert len(calls) == 3
    assert max(calls) == 1000
    assert tracker.client.get_run(tracker.run_id).info.status == "RUNNING"


def test_parameters_keep_their_first_value(tracker: Tracker) -> None:
    tracker.log_params({f"section.option_{i}": str(i) for i in range(130)})
    tracker.log_params({"section.option_0": "changed", "new": "1"})
    params = tracker.client.get_run(tracker.run_id).data.params
    assert len(params) == 131
    assert params["section.option_0"] == "0"


def test_dataset_and_artifact(tracker: Tracker, tmp_path: Path) -> None:
    tracker.log_dataset("cora", "d" * 64, "artifact://ingest/k", '{"num_nodes": 3}', "{}")
    tracker.log_dataset("cora", "d" * 64, "artifact://ingest/k", '{"num_nodes": 3}', "{}")
    run = tracker.client.get_run(tracker.run_id)
    assert [(d.dataset.name, d.dataset.digest) for d in run.inputs.dataset_inputs] == [("cora", "d" * 36)]
    (tmp_path / "report.html").write_text("<p>x</p>")
    tracker.log_artifact(tmp_path / "report.html")
    assert [f.path for f in tracker.client.list_artifacts(tracker.run_id)] == ["report.html"]
    assert (tracker.home.mlflow / "artifacts").is_dir()


def publish(tracker: Tracker, model_id: str, value: float, **tags: str) -> tuple[str, Decision]:
    """Publish a model whose value, as the champion's, is that on the same rows."""
    new = Candidate("", "valid/accuracy", value, True)

    def judge(version: str, champion: str | None) -> Decision:
        old = None if champion is None else find_version(tracker, f"m@{champion}").gate
        compared = Compared(value, old.value if old else None, 9, 9, "m")
        return decide(replace(new, version=version), old, lambda: compared)

    return ModelRegistry(tracker, "m").publish(model_id, {**tags, **gate_tags(new)}, "first", judge)


def test_model_version_and_champion(tracker: Tracker, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "recipe.json").write_text("{}")
    model_id = tracker.log_model(folder, "m", "digest-1", {"model.name": "gcn"})
    assert tracker.log_model(folder, "m", "digest-1", {}) == model_id
    tracker.log_metrics({"final/valid/accuracy": 0.5}, 7, model_id)
    tracker.log_metrics({"final/valid/accuracy": 0.5}, 7, model_id)
    assert history(tracker, "final/valid/accuracy") == [(7, 0.5)]
    (logged,) = tracker.client.get_logged_model(model_id).metrics
    assert (logged.key, logged.value) == ("final/valid/accuracy", 0.5)

    registry = ModelRegistry(tracker, "m")
    assert registry.champion_version() is None
    version, decision = publish(tracker, model_id, 0.5, t="1")
    assert (version, decision.promote) == ("1", True)
    again, decision = publish(tracker, model_id, 0.5, t="2")
    assert (again, decision.promote, decision.short) == ("1", True, "is champion")

    for number, value in enumerate((0.5, 0.6), start=2):
        other = tracker.log_model(folder, "m", f"digest-{number}", {})
        version, decision = publish(tracker, other, value)
        assert (version, decision.promote) == (str(number), value > 0.5)
    champion = find_version(tracker, "m@champion")
    assert (champion.version, champion.gate.value, champion.decision) == ("3", 0.6, "0.6000 > v1's 0.5000")
    assert "MLFLOW_TRACKING_URI" not in os.environ


def test_a_server_that_is_away_is_asked_again_then_named(home: Home) -> None:
    told: list[str] = []
    with pytest.raises(StageError, match=r"MLflow at http://127.0.0.1:9 did not do it.*run again when it answers"):
        Tracker(home, "test", "http://user:secret@127.0.0.1:9", (0.0, 0.0), told.append)
    [waiting] = told
    assert waiting.startswith("waiting for MLflow at http://127.0.0.1:9, retrying for some minutes: ")


def test_calls_are_repeated_only_where_that_helps(tracker: Tracker) -> None:
    from mlflow.exceptions import MlflowException

    tracker._pauses = (0.0, 0.0)
    calls = []

    def flaky(code: int, fail: int) -> str:
        calls.append(code)
        if len(calls) <= fail:
            raise MlflowException("it failed", code)
        return "done"

    assert tracker.call(flaky, 1, 2) == "done"  # 1: INTERNAL_ERROR
    assert len(calls) == 3
    calls.clear()
    with pytest.raises(StageError, match="it failed"):
        tracker.call(flaky, 1000, 99)  # INVALID_PARAMETER_VALUE
    assert len(calls) == 1


def test_credentials_stay_out_of_messages_and_urls() -> None:
    assert public_uri("https://user:secret@host:5000/mlflow") == "https://host:5000/mlflow"
    assert public_uri("sqlite:////tmp/x.db") == "sqlite:////tmp/x.db"
    assert how_to_open("https://h/#/experiments/1/runs/2") == "https://h/#/experiments/1/runs/2"
    assert how_to_open("sqlite:////x.db#/experiments/1/runs/2").startswith("mlflow ui --backend-store-uri sqlite:////x")


def recipe(system_metrics: bool = True) -> Any:
    return SimpleNamespace(
        name="recipe", tracking=SimpleNamespace(experiment="test", system_metrics=system_metrics, model_name=None)
    )


def test_live_tracker_logs_records_and_the_machine(tracked_home: Home) -> None:
    warnings: list[str] = []
    live = LiveTracker(tracked_home, recipe(), "key-9", RunContext("flow", "url"), warnings.append)
    for step in range(30):
        live.record({"step": step, "loss": float(step)})
    live.close("FAILED")
    assert warnings == []
    tracker = Tracker(tracked_home, "test")
    assert tracker.open_run("key-9", "recipe")
    assert history(tracker, "loss")[-1] == (29, 29.0)
    assert history(tracker, "system/system_memory_usage_megabytes")
    assert live.run_url == tracker.run_url


def test_a_metric_of_the_model_comes_before_those_of_the_machine(
    tracked_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_tracking, "_FLUSH_SECONDS", 0.02)
    live = LiveTracker(tracked_home, recipe(), "key-10", RunContext("flow", "url"))
    while not live.run_id:
        time.sleep(0.02)
    time.sleep(0.5)  # many flushes without a record
    live.record({"step": 1, "valid/accuracy": 0.5})
    live.close("FINISHED")
    metrics = list(Tracker(tracked_home, "test").client.get_run(live.run_id).data.metrics)
    assert metrics[0] == "valid/accuracy"
    assert any(name.startswith("system/") for name in metrics)


def test_live_tracker_never_ends_a_training(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr(tracking, "_PAUSES_SECONDS", ())
    monkeypatch.setattr(Tracker.__init__, "__defaults__", (None, (), None))
    warned = threading.Event()
    live = LiveTracker(home, recipe(), "key", warn=lambda text: warned.set())
    live.record({"step": 1, "loss": 1.0})
    assert warned.wait(30)
    live.record({"step": 2, "loss": 1.0})
    live.close("FINISHED")


def test_an_end_that_waits_for_mlflow_says_so(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that takes connections and answers nothing would hold the end of a training up without a word."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(live_tracking, "_CONNECT_SECONDS", 0.2)
        monkeypatch.setattr(live_tracking, "_CLOSE_SECONDS", 0.4)
        warnings: list[str] = []
        LiveTracker(home, recipe(), "key-11", warn=warnings.append).close()
    assert len(warnings) == 1
    assert warnings[0].startswith("waiting for MLflow, which has not taken the training's last metrics yet")


def test_system_sampler(tracked_home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "users"
    folder.mkdir()
    monkeypatch.chdir(folder)
    sampler = system_sampler(Tracker(tracked_home, "test").uri)
    sampler()
    sample = sampler()
    assert not list(folder.iterdir())  # MLflow's own default is a database in the working folder
    assert 0 <= sample["system/cpu_utilization_percentage"] <= 100
    assert sample["system/process_tree_memory_megabytes"] > 1
    assert sample["system/disk_available_megabytes"] > 0
    assert sample["system/network_receive_megabytes"] >= 0
    assert all(isinstance(value, float | int) for value in sample.values())


def test_flatten_is_what_mlflow_accepts() -> None:
    flat = flatten({"a": {"b": 1, "c": [1, 2]}, "d": "x" * 7000, "e@f": None, "g": {}})
    assert flat["a.b"] == "1"
    assert flat["a.c"] == "[1, 2]"
    assert len(flat["d"]) == 6000
    assert flat["d"].endswith("(7,000 characters in all)")
    assert flat["e_f"] == "null"
    assert flat["g"] == "{}"
    assert metric_key("valid/hits@20") == "valid/hits_at_20"


def test_a_torn_last_line_is_left_out_and_another_damaged_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    assert read_records(path) == []
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert read_records(path) == [{"step": 1, "loss": 2.0}]
    path.write_text('{"step": 1}\nrubbish\n{"step": 2}\n')
    with pytest.raises(IntegrityError, match="line 2"):
        read_records(path)


def test_thinning_keeps_ends_and_evaluations() -> None:
    records = [{"step": s, "loss": 1.0} for s in range(5000)]
    records[123]["valid/accuracy"] = 0.5
    kept = thin(records, 100)
    assert 100 <= len(kept) <= 102
    assert (kept[0]["step"], kept[-1]["step"]) == (0, 4999)
    assert any("valid/accuracy" in record for record in kept)
    assert thin(records[:50], 100) == records[:50]


def test_of_a_repeated_step_the_last_word_counts() -> None:
    records = [{"step": 1, "seconds": 1, "loss": 3.0}, {"step": 1, "seconds": 9, "loss": 2.0}]
    assert unique_by_step(records) == {"loss": {1: (2.0, 9.0)}}
    assert step_of({"epoch": 4}) == 4
    assert values_of({"step": 1, "loss": 1, "done": True, "note": "x"}) == {"loss": 1.0}
    json.dumps(values_of({"loss": 1}))
