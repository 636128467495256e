"""MLflow runs that nobody has open: of flow runs that ended between stages or were killed, and of backfills."""

from __future__ import annotations

from tasks.publish.tracking.mlflow_registry import MlflowRegistry
from tasks.publish.tracking.mlflow_store import FLOW_RUN, RunStatus, Tracker
from tasks.publish.tracking.store_uris import sqlite_file, tracking_uri
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home

BACKFILL = "graphmill.backfill"


def open_parent(home: Home, experiment: str, name: str, tags: dict[str, str]) -> str:
    """Return the id of the run that a backfill's runs stand under, made if there is none. Raises StageError."""
    tracker = Tracker(home, experiment, pauses=(1.0,))
    where = f"tags.`{BACKFILL}` = '{name}'"
    with file_lock(home.locks / "mlflow.lock"):
        runs = tracker.call(tracker.client.search_runs, [tracker.experiment_id], where, max_results=1)
        if runs:
            return str(runs[0].info.run_id)
        tags = {**tags, BACKFILL: name}
        run = tracker.call(tracker.client.create_run, tracker.experiment_id, tags=tags, run_name=f"backfill {name}")
        return str(run.info.run_id)


def set_state(home: Home, run_id: str, status: RunStatus) -> None:
    """Say how a run stands or ended. Raises StageError where MLflow cannot be reached."""
    tracker = MlflowRegistry(home, pauses=(1.0,))
    if status == "RUNNING":
        tracker.call(tracker.client.update_run, run_id, status=status)
    else:
        tracker.call(tracker.client.set_terminated, run_id, status)


def bury(home: Home, experiment: str, flow_run_id: str) -> None:
    """Mark the MLflow run of a flow run that was killed as failed, if it still says that it runs. Raises StageError."""
    database = sqlite_file(tracking_uri(home))
    if database is not None and not database.exists():
        return
    tracker = Tracker(home, experiment, pauses=())
    where = f"tags.`{FLOW_RUN}` = '{flow_run_id}' and attributes.status = 'RUNNING'"
    for run in tracker.call(tracker.client.search_runs, [tracker.experiment_id], where):
        tracker.call(tracker.client.set_terminated, run.info.run_id, "FAILED")
