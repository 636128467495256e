"""What a run tells the server beyond Prefect's own events."""

from __future__ import annotations

import logging
from typing import Any

from flows.records.parameters import PARTITION_TAG
from flows.records.run_record import RunRecord, all_runs
from tasks.calls import load_stage
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.outcomes import PublishManifest

CHAMPION = "graphmill.champion"
KEPT = "graphmill.kept"
RECOVERED = "graphmill.recovered"
logger = logging.getLogger(__name__)


def announce(home: Home, record: RunRecord) -> None:
    """Emit events for what `happenings` names; a server that is away fails no run."""
    try:
        from prefect.events import emit_event

        recipe = record.recipe
        resource = {"prefect.resource.id": f"graphmill.recipe.{recipe}", "prefect.resource.name": recipe}
        for event, payload in happenings(home, record):
            emit_event(event, resource=resource, payload=payload)
    except Exception as error:
        logger.warning("Prefect took no event: %s", error)


def happenings(home: Home, record: RunRecord) -> list[tuple[str, dict[str, Any]]]:
    """Return (event, payload) of what a finished run has brought about."""
    found: list[tuple[str, dict[str, Any]]] = []
    failure = record.failed_before or failure_before(home, record)
    if failure:
        found.append((RECOVERED, {"text": f"{record.recipe} is well again (it had failed: {failure})"}))
    if record.has_run("publish"):
        manifest = ArtifactStore(home).load("publish", record.stages["publish"].key, load_stage("publish").manifest)
        if manifest is not None and not manifest.gate.left_alone:
            found.append((CHAMPION if manifest.champion else KEPT, decided(record, manifest)))
    return found


def decided(record: RunRecord, manifest: PublishManifest) -> dict[str, Any]:
    """Return what the gate decided: `text` for people, with both scores and the drift, and the same as plain values."""
    metrics = ", ".join(
        f"{split} {name} {value:.4f}" for split, values in record.metrics.items() for name, value in values.items()
    )
    from tasks.publish import profile

    gate = manifest.gate
    is_champion = f"is {'' if manifest.champion else 'not '}champion"
    lines = [
        f"{manifest.model_name} version {manifest.model_version} {is_champion}: {gate.reason}",
        f"its own metrics: {metrics}",
    ]
    if gate.drift:
        lines.append(profile.text(gate.drift))
    names = ("metric", "challenger", "champion", "against", "rows", "drift")
    values = {name: getattr(gate, name) for name in names if getattr(gate, name) is not None}
    return {"text": "\n".join(lines), "model": manifest.model_name, "version": manifest.model_version, **values}


def failure_before(home: Home, record: RunRecord) -> str:
    """Return why the latest run of the same kind failed, or an empty text where it did not."""
    for other in all_runs(home, record.recipe):
        if other.id != record.id and other.status in ("completed", "failed") and _kind(other) == _kind(record):
            return other.error
    return ""


def _kind(record: RunRecord) -> tuple[str, list[str]]:
    """Return deployment and partition: that one partition is well says nothing of another."""
    return record.deployment, [tag for tag in record.tags if tag.startswith(PARTITION_TAG)]
