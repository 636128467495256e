"""Backfills on the terminal."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from typing import Any

from flows.backfill.actions import Planned
from flows.backfill.spec import Backfill
from flows.backfill.status import BackfillStatus, counts_text, read_status
from flows.terminal.console import format_seconds, out, print_facts, table

_LOOK_SECONDS = 2.0
_SHOWN_ROWS = 40


def show_plan(backfill: Backfill, planned: list[Planned]) -> None:
    """Print what each partition would do, stage by stage."""
    rows = table("partition", "", "stages that run", "found")
    for item in planned:
        word = f"skip: {item.skip}" if item.skip else "is there" if item.run is not None else "run"
        todo = [step.stage for step in item.steps if step.status != "cached"]
        stages = "all" if len(todo) == len(item.steps) else ", ".join(todo) or "none"
        rows.add_row(item.partition.name, word, stages, f"{len(item.steps) - len(todo)} of {len(item.steps)}")
    out().print(rows)
    number = sum(not item.skip and item.run is None for item in planned)
    out().print(f"{number} of {len(planned)} partitions to run, {backfill.max_active} at a time")
    out().print("stages that several partitions share run once: the later ones find them")
    out().print(champion_text(backfill))


def show_created(backfill: Backfill, planned: list[Planned]) -> None:
    """Say what was made and where it can be followed."""
    to_run = [item for item in planned if not item.skip]
    out().print(
        f"backfill {backfill.id}: {len(planned)} partitions, {len(to_run)} run"
        + (f", {len(planned) - len(to_run)} skipped" if len(to_run) < len(planned) else ""),
        markup=False,
    )
    out().print(champion_text(backfill), markup=False)
    print_facts(out(), [(name, f"graphmill backfill {name} {backfill.id}") for name in ("watch", "report")])


def champion_text(backfill: Backfill) -> str:
    """Say whether a backfill may change the champion."""
    if backfill.promote:
        return "champion  the gate chooses, partition by partition"
    return "champion  left alone; --promote lets the gate choose"


def show_list(statuses: list[BackfillStatus]) -> None:
    """Print a line for each backfill."""
    if not statuses:
        out().print(
            "no backfills; make one with: graphmill backfill create DEPLOYMENT --from ... --to ... --every year"
        )
        return
    rows = table("backfill", "deployment", "created", "partitions", "", right=("partitions",))
    for status in statuses:
        backfill = status.backfill
        created = backfill.created_at[:16].replace("T", " ")
        rows.add_row(backfill.id, backfill.deployment, created, str(len(status.rows)), counts_text(status))
    out().print(rows)


def status_table(status: BackfillStatus, limit: int | None = None) -> Any:
    """Return the partitions as a table; of many only those where something happens."""
    with_metrics = any(row.metrics for row in status.rows)
    heads = ["partition", "state", "time", "attempts"]
    rows = table(*heads, *(["valid", "test"] if with_metrics else []), "", right=("time", "attempts", "valid", "test"))
    shown = status.rows
    if limit is not None and len(shown) > limit:
        busy = [row for row in shown if row.state in ("running", "pending", "failed", "crashed", "cancelling")]
        shown = busy[:limit] or shown[:limit]
    for row in shown:
        metrics = []
        for values in [(row.metrics or {}).get(split, {}) for split in ("valid", "test")] if with_metrics else []:
            metrics.append(f"{next(iter(values.values())):.4f}" if values else "")
        took = format_seconds(row.seconds) if row.seconds else ""
        message = row.message[:90] if row.state in ("failed", "crashed", "cancelled") else ""
        rows.add_row(row.name, row.state, took, str(row.attempts or ""), *metrics, message)
    return rows


def show_status(status: BackfillStatus) -> None:
    """Print all partitions."""
    out().print(status_table(status))
    out().print(f"{status.backfill.id}: {counts_text(status)}", markup=False)


def watch(client: Any, backfill: Backfill) -> BackfillStatus:
    """Show progress until all partitions have ended. Ctrl-C ends the watching, not the runs."""
    from rich.console import Group
    from rich.live import Live

    shown: dict[str, str] = {}
    with Live(console=out(), refresh_per_second=4) if sys.stdout.isatty() else nullcontext() as live:
        while True:
            status = read_status(client, backfill)
            if live is not None:
                live.update(Group(status_table(status, _SHOWN_ROWS), f"{backfill.id}: {counts_text(status)}"))
            else:
                for row in status.rows:
                    if shown.get(row.name) != row.state:
                        shown[row.name] = row.state
                        print(f"{time.strftime('%H:%M:%S')} {row.name}: {row.state} {row.message}".rstrip(), flush=True)
            if status.ended:
                return status
            time.sleep(_LOOK_SECONDS)
