"""What a run tells the server beyond Prefect's own events."""

from __future__ import annotations

import logging
from typing import Any

from flows.parameters import PARTITION_TAG
from flows.runs import RunRecord, all_runs
from tasks.artifacts import ArtifactStore
from tasks.calls import load_stage
from tasks.home import Home

CHAMPION = "graphmill.champion"
RECOVERED = "graphmill.recovered"
logger = logging.getLogger(__name__)


def announce(home: Home, record: RunRecord) -> None:
    """Emit events for a new champion and for a recipe that is well again; a server that is away fails no run."""
    try:
        from prefect.events import emit_event

        for event, payload in happenings(home, record):
            resource = {
                "prefect.resource.id": f"graphmill.recipe.{record.recipe}",
                "prefect.resource.name": record.recipe,
            }
            emit_event(event, resource=resource, payload=payload)
    except Exception as error:
        logger.warning("Prefect took no event: %s", error)


def happenings(home: Home, record: RunRecord) -> list[tuple[str, dict[str, Any]]]:
    """Return (event, payload) of what a finished run has brought about."""
    found: list[tuple[str, dict[str, Any]]] = []
    failure = record.failed_before or _failure_before(home, record)
    if failure:
        found.append((RECOVERED, {"text": f"{record.recipe} is well again (it had failed: {failure})"}))
    published = record.stages.get("publish")
    if published is not None and published["status"] == "ran":
        manifest = ArtifactStore(home).load("publish", published["key"], load_stage("publish").manifest)
        if manifest is not None and manifest.champion:
            metrics = ", ".join(
                f"{split} {name} {value:.4f}"
                for split, values in manifest.metrics.items()
                for name, value in values.items()
            )
            text = f"{manifest.model_name} version {manifest.model_version} is champion: {metrics}"
            found.append((CHAMPION, {"text": text, "version": manifest.model_version}))
    return found


def _failure_before(home: Home, record: RunRecord) -> str:
    """Return why the latest run of the same kind failed, or an empty text where it did not."""
    for other in all_runs(home, record.recipe):
        if other.id != record.id and other.status in ("completed", "failed") and _kind(other) == _kind(record):
            return other.error
    return ""


def _kind(record: RunRecord) -> tuple[str, list[str]]:
    """Return deployment and partition: that one partition is well says nothing of another."""
    return record.deployment, [tag for tag in record.tags if tag.startswith(PARTITION_TAG)]
