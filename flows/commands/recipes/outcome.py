"""What came of a run: for people, and as the object that `--json` prints."""

from __future__ import annotations

import os
import time
from socket import gethostname
from typing import TYPE_CHECKING, Any

from flows.records.run_record import RunRecord, all_runs, now_text
from flows.records.tables import label_share_table, metric_table, stage_table
from flows.services.addresses import mlflow_page, prefect_page
from flows.services.settings import read_settings
from flows.services.state import is_up
from flows.terminal.console import print_facts
from flows.terminal.options import graphmill_command
from tasks.storage.home import Home

if TYPE_CHECKING:
    from rich.console import Console

_STAGE_KEYS = {"name", "status", "seconds", "peak_bytes", "rows", "bytes", "key", "warnings", "repaired"}


def outcome_json(record: RunRecord) -> dict[str, Any]:
    """Return the object that `--json` prints; scripts rely on these keys."""
    return {
        "status": record.status,
        "recipe": record.recipe,
        "metrics": record.metrics,
        "controls": record.controls,
        "stages": [stage.model_dump(include=_STAGE_KEYS) for stage in record.stages.values()],
        "artifacts": {name: stage.folder for name, stage in record.stages.items()},
        "report": record.report or None,
        "map": record.map or None,
        "champion": record.champion or None,
        "mlflow_run_id": record.mlflow_run_id,
        "run_id": record.id or None,
        "prefect_flow_run_id": (record.id if record.in_prefect else "") or None,
    }


def failure_json(home: Home, recipe: str, error: BaseException) -> dict[str, Any]:
    """Return what `--json` prints where a run did not succeed: as far as it came, and why it ended."""
    mine = [record for record in all_runs(home) if record.process == os.getpid() and record.host == gethostname()]
    record = mine[0] if mine else RunRecord(id="", recipe=recipe, started_at=now_text())
    status = "failed" if isinstance(error, Exception) else "cancelled"
    return {**outcome_json(record), "status": status, "error": str(error) or type(error).__name__}


def show_outcome(console: Console, home: Home, record: RunRecord) -> None:
    """Print metrics, what the stages did, and where to look."""
    for shown in (
        metric_table(record.recipe, record.metrics, record.controls),
        label_share_table(record.reported),
        stage_table(record),
    ):
        if shown.rows:
            console.print(shown)
    print_facts(console, where_to_look(home, record))
    for name, stage in record.stages.items():
        if stage.repaired:
            console.print(f"repaired  {name}: {stage.repaired}", style="yellow", markup=False)
        for warning in stage.warnings:
            console.print(f"warning   {name}: {warning}", style="yellow", markup=False)


def where_to_look(home: Home, record: RunRecord) -> list[tuple[str, str]]:
    """Return what came of a run, and its pages where servers have them; else how to get at those."""
    facts = [("model", record.champion), ("written", record.written), ("report", record.report), ("map", record.map)]
    pages = [("mlflow", mlflow_page(record.mlflow_run_url))]
    settings = read_settings(home) if is_up(home) else None  # whose server keeps runs that ended for a while only
    forgotten = settings is not None and 0 < settings.keep_runs < time.time() - record.started.timestamp()
    if record.in_prefect and not forgotten:
        pages.append(("prefect", prefect_page(f"runs/flow-run/{record.id}")))
    lines = [(name, text) for name, text in facts + pages if text]
    if not all(page for _, page in pages):
        lines.append(("pages", f"{graphmill_command('up')} && {graphmill_command('inspect', record.id[:8])}"))
    return lines
