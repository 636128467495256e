from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from configs.errors import RecipeError, StageError
from configs.label_types import label_type
from configs.load import build_recipe
from configs.schema import Recipe
from tasks.apply.model.files import load_published
from tasks.evaluators.evaluators import Prediction
from tasks.kinds.diagnosis.classes import diagnose
from tasks.processes.run_context import RunContext, publishing_from
from tasks.publish import build as publish_build
from tasks.publish.stage import STAGE
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.stage import Parent, run_stage
from tasks.storage.home import Home
from tasks.storage.outcomes import EvalReport, PublishManifest
from tests.finished import dataset, trained
from tests.ports import free_port
from tests.support import COMMON, as_partition, node_graph


def recipe(**tracking: Any) -> Recipe:
    return build_recipe(
        {
            "name": "demo",
            "dataset": {"name": "synthetic"},
            "model": {"name": "gcn"},
            "tracking": {"system_metrics": False, **tracking},
        }
    )


def finished_run(folder: Path, accuracy: float = 0.75, key: str = "train-1") -> dict[str, Parent]:
    """The six artifacts before publication; only what publication reads is real."""
    graph = as_partition(node_graph(folder / "graph", num_nodes=80))
    train = trained(folder / "train", graph, "gcn")
    lines = [f'{{"step": {s}, "epoch": {s}, "seconds": {s}, "loss": {1 / s}}}' for s in range(1, 4)]
    (train.folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    manifest = train.manifest.model_copy(
        update={"key": key, "created_at": "2026-01-01T00:00:10+00:00", "seconds": 10.0, "num_parameters": len(key)}
    )
    scores = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    report = {
        "split": "test",
        "higher_is_better": True,
        **diagnose(Prediction(scores, scores.argmax(1)), label_type("multiclass")),
    }
    metrics = {"valid": {"accuracy": accuracy, "f1_macro": 0.5}, "test": {"accuracy": 0.7}}
    evaluation = EvalReport(
        **{**COMMON, "key": f"eval-{accuracy}"},
        stage="evaluate",
        files={},
        evaluator="auto",
        metric="accuracy",
        metrics=metrics,
        controls={"majority": {"valid": {"accuracy": 0.25}}},
        report=report,
    )
    return {
        "ingest": dataset(folder / "data", graph),
        "preprocess": graph,
        "components": graph,
        "partition": graph,
        "train": Parent(manifest, train.folder),
        "evaluate": Parent(evaluation, folder),
    }


def publish(home: Home, parents: dict[str, Parent], chosen: Recipe | None = None) -> tuple[PublishManifest, Path, bool]:
    outcome = run_stage(STAGE, chosen or recipe(), parents, home)
    return outcome.manifest, outcome.folder, outcome.cached


def open_run(home: Home, manifest: PublishManifest) -> Any:
    return Tracker(home, "graphmill").client.get_run(manifest.mlflow_run_id)


def check_published(home: Home, manifest: PublishManifest, folder: Path, tmp_path: Path) -> None:
    """What a published run must hold, whatever the store."""
    run = open_run(home, manifest)
    assert run.info.status == "FINISHED"
    assert run.data.params["model.name"] == "gcn"
    assert run.data.params["train.epochs"] == "20"
    assert run.data.metrics["final/valid/accuracy"] == 0.75
    assert run.data.metrics["simple_control/majority/valid/accuracy"] == 0.25
    assert len(run.data.params) < 25, "a person reads them"
    assert "preprocess.workers" not in run.data.params
    note = run.data.tags["mlflow.note.content"]
    for text in (
        "gcn on test",
        "| valid | 0.7500",
        "| valid · majority | 0.2500",
        "`model.name=gcn`",
        "Version 1: champion",
    ):
        assert text in note, note
    assert note.splitlines()[-1].startswith("Prefect run [flow-1](")
    assert run.data.metrics["loss"] == pytest.approx(1 / 3)
    assert run.data.tags["graphmill.train.key"] == "train-1"
    assert run.data.tags["prefect.flow_run_id"] == "flow-1"
    assert run.inputs.dataset_inputs[0].dataset.name == "test"
    tracker = Tracker(home, "graphmill")
    tracker.run_id = manifest.mlflow_run_id
    history = tracker.client.get_metric_history(manifest.mlflow_run_id, "loss")
    assert [(p.step, p.timestamp) for p in sorted(history, key=lambda p: p.step)] == [
        (s, 1767225600000 + 1000 * s) for s in (1, 2, 3)
    ]
    assert [f.path for f in tracker.client.list_artifacts(manifest.mlflow_run_id)] == ["report.html"]
    assert (manifest.model_version, manifest.champion) == ("1", True)
    version = tracker.client.get_model_version_by_alias("demo", "champion")
    assert str(version.version) == "1"
    import mlflow

    with tracker.as_global():
        local = mlflow.artifacts.download_artifacts(
            artifact_uri="models:/demo@champion", dst_path=str(tmp_path / "got")
        )
    assert load_published(Path(local)).config.name == "gcn"
    assert not list(Path(local).glob("*.pkl"))
    html = (folder / manifest.report_file).read_text()
    assert manifest.mlflow_run_id in html
    assert "v1 champion" in html


def test_publish_is_complete_and_repeatable(tmp_path: Path, tracked_home: Home) -> None:
    parents = finished_run(tmp_path)
    with publishing_from(RunContext("flow-1", "http://prefect/flow-1")):
        manifest, folder, cached = publish(tracked_home, parents)
    assert not cached
    assert sorted(manifest.files) == ["report.html"]
    check_published(tracked_home, manifest, folder, tmp_path)
    assert publish(tracked_home, parents)[2]
    again = run_stage(STAGE, recipe(), parents, tracked_home, force=True).manifest
    assert (again.mlflow_run_id, again.model_version) == (manifest.mlflow_run_id, "1")
    assert len(Tracker(tracked_home, "graphmill").client.search_logged_models(["1", "2"])) == 1


def test_a_better_model_becomes_champion_and_a_worse_one_does_not(tmp_path: Path, tracked_home: Home) -> None:
    outcomes = []
    for number, accuracy in enumerate((0.5, 0.4, 0.6)):
        run = tmp_path / str(number)
        run.mkdir()
        manifest, folder, _ = publish(tracked_home, finished_run(run, accuracy, f"train-{'x' * number}"))
        outcomes.append((manifest.model_version, manifest.champion))
        assert ("does not beat" in (folder / "report.html").read_text()) == (number == 1)
    assert outcomes == [("1", True), ("2", False), ("3", True)]


def test_a_crash_in_the_middle_is_marked_and_resumed(
    tmp_path: Path, tracked_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = finished_run(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(publish_build, "render", lambda *_: (_ for _ in ()).throw(OSError("gone")))
        with pytest.raises(OSError, match="gone"):
            publish(tracked_home, parents)
    tracker = Tracker(tracked_home, "graphmill")
    (run,) = tracker.client.search_runs([tracker.experiment_id])
    assert run.info.status == "FAILED"
    manifest, _, _ = publish(tracked_home, parents)
    assert manifest.mlflow_run_id == run.info.run_id
    assert manifest.model_version == "1"
    assert open_run(tracked_home, manifest).info.status == "FINISHED"


def test_a_gate_metric_that_was_not_measured_stops_before_anything_is_stored(
    tmp_path: Path, tracked_home: Home
) -> None:
    with pytest.raises(RecipeError, match=r"valid/hits@3 is not measured; there are valid/accuracy"):
        publish(tracked_home, finished_run(tmp_path), recipe(gate_metric="valid/hits@3"))
    assert Tracker(tracked_home, "x").client.search_experiments(filter_string="name = 'graphmill'") == []


def test_key_depends_on_the_store_but_holds_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    at_home = STAGE.config(recipe())
    assert at_home["store"] == "home"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "https://user:secret@mlflow.example")
    away = STAGE.config(recipe())
    assert away["store"] == "https://mlflow.example"
    assert "secret" not in str(away)


def test_a_server_that_is_away_leaves_the_training_and_a_rerun_publishes_it(
    tmp_path: Path, tracked_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    parents = finished_run(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setattr(Tracker.__init__, "__defaults__", (None, (0.01,), None))
    with pytest.raises(StageError, match="The training is kept; run again"):
        publish(tracked_home, parents)
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert publish(tracked_home, parents)[0].champion


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A real MLflow server on loopback."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    store = tmp_path / "server"
    store.mkdir()
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{store}/mlflow.db", "--artifacts-destination", str(store / "files")]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    with (
        (store / "log").open("w") as log,
        subprocess.Popen(
            command, env=environment, stdout=log, stderr=log, start_new_session=True, cwd=store
        ) as process,
    ):
        try:
            deadline = time.monotonic() + 120
            while True:
                try:
                    with urllib.request.urlopen(f"{url}/health", timeout=2):
                        break
                except OSError:
                    assert process.poll() is None, (store / "log").read_text()
                    assert time.monotonic() < deadline, (store / "log").read_text()
                    time.sleep(0.3)
            yield url
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def test_publish_to_a_real_server(tmp_path: Path, home: Home, server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    parents = finished_run(tmp_path)
    with publishing_from(RunContext("flow-1", "http://prefect/flow-1")):
        manifest, folder, _ = publish(home, parents)
    assert manifest.mlflow_run_url.startswith(f"{server}/#/experiments/")
    check_published(home, manifest, folder, tmp_path)
    again = run_stage(STAGE, recipe(), parents, home, force=True).manifest
    assert (again.mlflow_run_id, again.model_version) == (manifest.mlflow_run_id, "1")
    assert not home.mlflow.exists()
    assert os.environ["MLFLOW_TRACKING_URI"] == server
