"""Deployments on the terminal."""

from __future__ import annotations

from flows.deploy.deployments import DeploymentRow, list_deployments, server
from flows.services.addresses import prefect_page
from flows.terminal.console import out, print_facts, table
from flows.terminal.options import graphmill_command


def show_deployed(name: str) -> None:
    """Say what was made and how it is used."""
    with server() as client:
        (row,) = (row for row in list_deployments(client) if row.name == name)
    lines = [
        ("deployed", f"{row.name}: {row.recipe}"),
        ("schedule", row.schedule),
        ("form", prefect_page(f"deployments/deployment/{row.id}")),
        ("start", graphmill_command("start", row.name, "--watch")),
    ]
    if "@" not in row.recipe:
        lines += [
            ("backfill", graphmill_command(*f"backfill create {row.name} --grid seed=0..4".split())),
            ("", graphmill_command(*f"backfill create {row.name} --from 2021 --to 2026 --every year".split())),
            ("", "the latter where the data have times"),
        ]
    print_facts(out(), lines)


def show_deployments(rows: list[DeploymentRow]) -> None:
    """Print a line each."""
    if not rows:
        out().print("no deployments; make one with: graphmill deploy RECIPE --name N", markup=False)
        return
    shown = table("deployment", "recipe", "schedule", "next run", "last run", "")
    for row in rows:
        soon = "paused" if row.paused else f"{row.next_run:%Y-%m-%d %H:%M %Z}" if row.next_run else ""
        use, of_data, recipe = row.recipe.rpartition(" for ")
        place = f"{use}{of_data}{recipe.rpartition('/')[2]}"
        shown.add_row(row.name, place, row.schedule, soon, row.last_run, row.last_state)
    out().print(shown)
