"""Deployments on the terminal."""

from __future__ import annotations

import datetime
import os

from flows.deploy.deployments import DeploymentRow, list_deployments
from flows.terminal.console import out, table


def show_deployed(name: str) -> None:
    """Say what was made and how it is used."""
    (row,) = (row for row in list_deployments() if row.name == name)
    page = os.environ.get("PREFECT_UI_URL") or os.environ["PREFECT_API_URL"].rstrip("/").removesuffix("/api")
    lines = [
        ("deployed", f"{row.name}: {row.recipe}"),
        ("schedule", row.schedule),
        ("form", f"{page}/deployments/deployment/{row.id}"),
        ("start", f"prefect deployment run train_graph/{row.name}"),
        ("backfill", f"graphmill backfill create {row.name} --from 2021 --to 2026 --every year"),
    ]
    for head, text in lines:
        out().print(f"{head:<9} {text}", markup=False, soft_wrap=True)


def show_deployments(rows: list[DeploymentRow]) -> None:
    """Print a line each."""
    if not rows:
        out().print("no deployments; make one with: graphmill deploy RECIPE --name N", markup=False)
        return
    shown = table("deployment", "recipe", "schedule", "next run", "last run", "")
    for row in rows:
        soon = "paused" if row.paused else _local(row.next_run)
        shown.add_row(row.name, row.recipe.rpartition("/")[2], row.schedule, soon, row.last_run, row.last_state)
    out().print(shown)


def _local(moment: datetime.datetime | None) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M") if moment else ""
