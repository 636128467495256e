"""`graphmill clean --keep-versions`: what nobody names goes, with its MLflow run and files."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from flows.commands.installation.clean import clean_home
from tasks.publish.gate.rules import Decision
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.publish.tracking.model_registry import ModelRegistry, remove_old_versions
from tasks.publish.tracking.registered import model_versions
from tasks.publish.tracking.registry import open_registry
from tasks.storage.home import Home


def publish(home: Home, folder: Path, number: int, *, better: bool) -> None:
    """A version of `demo` whose run is its own."""
    tracker = Tracker(home, "test")
    tracker.open_run(f"key {number}", "demo")
    files = folder / f"model-{number}"
    files.mkdir()
    (files / "model.json").write_text(f"{number}" * 1000)
    model_id = tracker.log_model(files, "demo", f"digest-{number}", {})
    ModelRegistry(tracker, "demo").publish(model_id, {}, "", lambda *_: Decision(better, "so says the test"))


def test_old_versions_go_with_their_runs(tracked_home: Home, tmp_path: Path) -> None:
    for number in range(1, 8):
        publish(tracked_home, tmp_path, number, better=number in (2, 4))  # 4 is champion after 2
    runs = {one.version: one.run_id for one in model_versions(open_registry(tracked_home), "demo")}
    later = time.time() + 10
    assert not list(remove_old_versions(tracked_home, 1, time.time() - 3600, (), dry_run=False)), "all are young"
    found = list(remove_old_versions(tracked_home, 2, later, {"demo@3"}, dry_run=True))
    assert found == [("demo@5", 1000), ("demo@1", 1000)]
    assert len(model_versions(open_registry(tracked_home), "demo")) == 7
    (removed,) = [
        [item for item in clean_home(tracked_home, -10, dry_run=False, keep_versions=2) if item.what == "version"]
    ]
    assert [str(item.path) for item in removed] == ["demo@5", "demo@3", "demo@1"]
    registry = open_registry(tracked_home)
    left = {one.version for one in model_versions(registry, "demo")}
    assert left == {"7", "6", "4", "2"}
    assert registry.aliases("demo") == {"champion": "4"}
    with closing(sqlite3.connect(tracked_home.mlflow / "mlflow.db")) as database:
        known = {run for (run,) in database.execute("SELECT run_uuid FROM runs")}
    assert known == {runs[version] for version in left}
    assert len(list((tracked_home.mlflow / "artifacts").rglob("model.json"))) == 4
    tracker = Tracker(tracked_home, "test")
    assert ModelRegistry(tracker, "demo").roll_back().after == "2"
    assert not list(remove_old_versions(tracked_home, 4, later, (), dry_run=False))


def test_a_home_without_models_has_none_to_remove(home: Home) -> None:
    assert clean_home(home, 0, dry_run=False, keep_versions=1) == []
    assert not (home.mlflow / "mlflow.db").exists()
