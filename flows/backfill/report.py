"""The report of a backfill: one self-contained page, metrics over snapshots or over the grid."""

from __future__ import annotations

import datetime
import os
from pathlib import Path
from typing import Any

from flows.backfill.spec import Backfill
from flows.backfill.status import BackfillStatus, PartitionRow, counts_text
from flows.console import format_seconds
from tasks.artifacts import write_atomic
from tasks.home import Home
from tasks.publish.figures import Canvas, styled

_TEMPLATE = "report.jinja"
_MAX_BARS = 40


def write_report(client: Any, home: Home, status: BackfillStatus, path: Path) -> Path:
    """Write the page and return its path. `status` has its metrics (`with_metrics`)."""
    write_atomic(path.resolve(), render(status).encode())
    return path


def render(status: BackfillStatus) -> str:
    """Return the page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    metric = metric_of(status)
    canvases = [(caption, canvas) for caption, canvas in pictures(status, metric) if canvas is not None]
    backfill = status.backfill
    page = os.environ.get("PREFECT_UI_URL", "")
    return environment.get_template(_TEMPLATE).render(
        backfill=backfill,
        asked=asked(backfill),
        counts=counts_text(status),
        metric=metric,
        splits=[split for split in ("valid", "test") if any(split in (row.metrics or {}) for row in status.rows)],
        rows=[row_values(row, metric, page) for row in status.rows],
        best=best(status, metric),
        pictures=[(caption, Markup(canvas.svg(caption))) for caption, canvas in canvases],  # our own, texts escaped
        written_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def metric_of(status: BackfillStatus) -> str:
    """Return the first metric that was measured."""
    for row in status.rows:
        for values in (row.metrics or {}).values():
            for name in values:
                return name
    return ""


def value_of(row: PartitionRow, split: str, metric: str) -> float | None:
    """Return a partition's metric on a split."""
    return (row.metrics or {}).get(split, {}).get(metric)


def asked(backfill: Backfill) -> list[tuple[str, str]]:
    """Return what the backfill was asked, for people."""
    facts = [("deployment", backfill.deployment)]
    if backfill.every:
        facts.append(("snapshots", f"{backfill.first} to {backfill.last}, every {backfill.every}"))
    if backfill.at:
        facts.append(("snapshots", ", ".join(backfill.at)))
    facts += [(key, ", ".join(values)) for key, values in backfill.grid.items()]
    if backfill.overrides:
        facts.append(("with", ", ".join(backfill.overrides)))
    facts += [("reprocess", backfill.reprocess), ("at a time", str(backfill.max_active)), ("made", backfill.created_at)]
    return facts


def row_values(row: PartitionRow, metric: str, page: str) -> dict[str, Any]:
    """Return a row of the table."""
    values = {split: value_of(row, split, metric) for split in ("valid", "test")}
    return {
        "name": row.name,
        "state": row.state,
        "time": format_seconds(row.seconds) if row.seconds else "",
        "attempts": row.attempts or "",
        "metrics": {split: "" if value is None else f"{value:.4f}" for split, value in values.items()},
        "link": f"{page}/runs/flow-run/{row.flow_run_id}" if page and row.flow_run_id else "",
        "message": row.message if row.state in ("failed", "crashed") else "",
    }


def best(status: BackfillStatus, metric: str) -> str:
    """Name the partition with the best validation (else test) metric; empty where there is none."""
    lower = metric in ("rmse", "mae", "mse")
    for split in ("valid", "test"):
        found = [(value, row.name) for row in status.rows if (value := value_of(row, split, metric)) is not None]
        if found:
            value, name = min(found) if lower else max(found)
            return f"{name}: {split} {metric} {value:.4f}"
    return ""


def pictures(status: BackfillStatus, metric: str) -> list[tuple[str, Canvas | None]]:
    """Draw the metric and the time of each partition."""
    if not status.rows:
        return []
    return [
        (f"{metric} of each partition", metric_picture(status, metric)),
        ("Time of each run; what others had made already takes none", time_picture(status)),
    ]


@styled
def metric_picture(status: BackfillStatus, metric: str) -> Canvas | None:
    """Lines over snapshots; points over a grid."""
    rows = [row for row in status.rows if row.metrics]
    if not rows:
        return None
    canvas = Canvas()
    (ax,) = canvas.axes
    over_time = not status.backfill.grid
    if over_time:
        rows = sorted(rows, key=lambda row: row.name)
    for split, marker in (("valid", "o"), ("test", "s")):
        points = [(place, value_of(row, split, metric)) for place, row in enumerate(rows)]
        known = [(place, value) for place, value in points if value is not None]
        if known:
            line = "-" if over_time else ""
            ax.plot(*zip(*known, strict=True), marker=marker, linestyle=line, label=split)
    _name_places(ax, [row.name for row in rows])
    ax.set(ylabel=metric, title=f"{status.backfill.id}: {metric}")
    ax.legend()
    return canvas


@styled
def time_picture(status: BackfillStatus) -> Canvas | None:
    """Bars of seconds."""
    rows = [row for row in status.rows if row.seconds]
    if not rows:
        return None
    canvas = Canvas()
    (ax,) = canvas.axes
    ax.bar(range(len(rows)), [row.seconds or 0.0 for row in rows])
    _name_places(ax, [row.name for row in rows])
    ax.set(ylabel="seconds", title="Time of each run")
    return canvas


def _name_places(ax: Any, names: list[str]) -> None:
    """Write the partitions' names below the axis, of many only some."""
    step = max(1, -(-len(names) // _MAX_BARS))
    places = list(range(0, len(names), step))
    long = max((len(name) for name in names), default=0) * len(places) > 90
    ax.set_xticks(
        places, [names[place] for place in places], rotation=60 if long else 0, ha="right" if long else "center"
    )
