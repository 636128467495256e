"""What MLflow hears of a flow run while it lives, and when it was killed."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from configs.errors import GraphmillError
from configs.schema import Recipe
from flows.records.run_record import RunRecord
from flows.terminal.progress import RunListener
from tasks.calls import expected_key, find_stage, load_parents, load_stage
from tasks.processes.run_context import current_run
from tasks.storage.home import Home

if TYPE_CHECKING:
    from tasks.publish.tracking.mlflow_store import RunStatus

logger = logging.getLogger(__name__)


def open_tracking(listener: RunListener, home: Home, recipe: Recipe, record: RunRecord, *, force: bool) -> None:
    """Follow the training in MLflow while it runs; nothing is opened (and mlflow not imported) where it is cached."""
    keys = record.parent_keys(load_stage("train").parents)
    if not force and find_stage("train", recipe, keys, home) is not None:
        return
    from tasks.publish.tracking.live import LiveTracker

    key = expected_key("train", recipe, keys, home)
    listener.tracker = LiveTracker(home, recipe, key, current_run(), warn=lambda text: listener.warning("train", text))


def close_tracking(listener: RunListener, status: RunStatus | None = None) -> None:
    """End the live view; the MLflow run ends with it where a status is given, else with publication or the flow."""
    tracker, listener.tracker = listener.tracker, None
    if tracker is not None:
        tracker.close(status)
        listener.tracked_run = tracker.run_id


def end_tracking(listener: RunListener, home: Home, status: RunStatus) -> None:
    """Say how the MLflow run of a flow run ended that no publication has ended."""
    if listener.tracker is not None:
        close_tracking(listener, status)
    elif listener.tracked_run:
        from tasks.publish.tracking.mlflow_store import set_state

        with contextlib.suppress(Exception):  # the error that is under way matters more, or the run is done
            set_state(home, listener.tracked_run, status)


def note_champion(home: Home, record: RunRecord, text: str, becoming: str) -> None:
    """Write down what becomes of the champion (`RunContext.note_champion`)."""
    record.champion, record.becoming = text, becoming
    record.write(home)


def settle_champion(home: Home, record: RunRecord) -> None:
    """Find out whether the alias was moved by a run that was killed meanwhile; a store that is away says it later."""
    name, _, version = record.becoming.rpartition("@")
    if not name:
        return
    from tasks.publish.gate.rules import CHAMPION
    from tasks.publish.tracking.registry import open_registry

    with contextlib.suppress(Exception):
        is_champion = open_registry(home).aliases(name).get(CHAMPION) == version
        word = "champion" if is_champion else "not champion, as the run was killed before it was"
        note_champion(home, record, f"{name} version {version}: {word}", "")


def end_killed_tracking(home: Home, record: RunRecord) -> None:
    """End the MLflow run of a dead flow run; only one that came to its training has one."""
    if not {"partition", "train"} & set(record.stages):
        return
    from tasks.publish.tracking.mlflow_store import bury as bury_tracked

    with contextlib.suppress(Exception):  # a store that is away: the next look at the run says what it is
        bury_tracked(home, str(record.config["tracking"]["experiment"]), record.id)


def log_cached_publication(home: Home, recipe: Recipe, record: RunRecord) -> None:
    """Log a deployment's run that found its publication as an MLflow run of its own: each night is one."""
    if not record.deployment or "publish" not in record.stages or record.has_run("publish"):
        return
    from tasks.publish.run_log import log_found

    stage, published_in = load_stage("publish"), record.mlflow_run_id or ""
    try:
        parents = load_parents(stage, home, record.parent_keys(stage.parents))
        record.mlflow_run_id, record.mlflow_run_url = log_found(home, recipe, parents, published_in, current_run())
    except GraphmillError as error:
        logger.warning("MLflow has no run of this flow run: %s", error)
