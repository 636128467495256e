"""MLflow runs that nobody has open: of flow runs that ended between stages or were killed, and of backfills."""

from __future__ import annotations

from collections.abc import Mapping

from configs.schema import Recipe
from tasks.processes.run_context import RunContext
from tasks.publish.build import log_finals, log_run
from tasks.publish.tracking.description import describe
from tasks.publish.tracking.mlflow_registry import MlflowRegistry
from tasks.publish.tracking.mlflow_store import FLOW_RUN, RunStatus, Tracker
from tasks.publish.tracking.store_uris import sqlite_file, tracking_uri
from tasks.publish.vectors import vector_notes
from tasks.stage import Parent
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home

BACKFILL = "graphmill.backfill"


def open_parent(home: Home, experiment: str, name: str, tags: dict[str, str]) -> str:
    """Return the id of the run that a backfill's runs stand under, made if there is none. Raises StageError."""
    tracker = Tracker(home, experiment, pauses=(1.0,))
    where = f"tags.`{BACKFILL}` = '{name}'"
    with file_lock(home.locks / "mlflow.lock"):
        found = tracker.call(tracker.client.search_runs, [tracker.experiment_id], where, max_results=1)
        if found:
            return str(found[0].info.run_id)
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


def log_found(
    home: Home, recipe: Recipe, parents: Mapping[str, Parent], published_in: str, context: RunContext
) -> tuple[str, str]:
    """Log a flow run that found all it asked for, publication too, as a run of its own; returns its id and URL.

    `parents` holds the artifacts that the publication is of, `published_in` is the MLflow run that made it. Raises
    StageError.
    """
    tracker = Tracker(home, recipe.tracking.experiment, pauses=(1.0,))
    tracker.open_run(parents["train"].manifest.key, recipe.name, context, trains=False)
    log_run(tracker, recipe, dict(parents))
    log_finals(tracker, dict(parents))
    notes, data, evaluation = vector_notes(parents), parents["ingest"].manifest, parents["evaluate"].manifest
    tracker.describe(describe(recipe, data, evaluation, "", {}, notes))
    tracker.set_tags({"graphmill.published_in": published_in, "graphmill.cached": "true"})
    tracker.close("FINISHED")
    return tracker.run_id, tracker.run_url
