"""What a flow run leaves behind in Prefect and MLflow besides its artifacts: tables, links, pictures."""

from __future__ import annotations

import logging
from typing import Any

from configs.schema import Recipe
from flows.console import format_bytes, format_seconds
from flows.listening import RunListener
from flows.runs import RunRecord
from tasks.home import Home

logger = logging.getLogger(__name__)


def open_tracking(listener: RunListener, home: Home, recipe: Recipe, record: RunRecord) -> None:
    """Open the MLflow run that training's live metrics go to, unless training is cached."""


def close_tracking(listener: RunListener, error: BaseException) -> None:
    """Mark the MLflow run as failed or killed."""


def stage_table(record: RunRecord) -> str:
    """Return the table of stages as Markdown."""
    lines = ["| stage | | seconds | peak memory | rows | size |", "|---|---|--:|--:|--:|--:|"]
    for name, stage in record.stages.items():
        lines.append(
            f"| {name} | {stage['status']} | {format_seconds(stage['seconds'])} | {format_bytes(stage['peak_bytes'])} "
            f"| {stage['rows']:,} | {format_bytes(stage['bytes'])} |"
        )
    return "\n".join(lines)


def leave_artifacts(home: Home, record: RunRecord) -> None:
    """Create Prefect's artifacts; what cannot be shown does not fail the run."""
    from prefect.artifacts import create_markdown_artifact

    try:
        create_markdown_artifact(stage_table(record), key="stages", description="What each stage did", _sync=True)
    except Exception as error:
        logger.warning("Prefect took no artifacts: %s", error)


__all__: list[str] = []
_: Any = None
