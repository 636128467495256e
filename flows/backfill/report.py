"""The report of a backfill: one self-contained page, metrics over snapshots or over the grid."""

from __future__ import annotations

import datetime
import statistics
from pathlib import Path
from typing import Any

from configs.source_files import user_path
from flows.backfill.spec import Backfill
from flows.backfill.status import BackfillStatus, PartitionRow, counts_text
from flows.services.addresses import prefect_page
from flows.terminal.console import format_seconds
from tasks.publish.plots.figures import Canvas, styled
from tasks.storage.artifacts import output_errors, write_atomic

_TEMPLATE = "report.jinja"
_WIDTH = 9.0  # inches
_MAX_ROWS = 60
SPLITS = ("valid", "test")
_MAX_TICKS = 16


def write_report(status: BackfillStatus, path: Path) -> Path:
    """Write the page and return its path. `status` has its results (`with_results`)."""
    path = user_path(path)
    with output_errors(path.resolve()):
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
    stages = list(dict.fromkeys(name for row in status.rows for name in row.stages or {}))
    drawn = [
        (f"{metric} of each partition", metric_picture(status, metric)),
        ("Time of each run; what others had made already takes none", time_picture(status)),
    ]
    return environment.get_template(_TEMPLATE).render(
        backfill=status.backfill,
        request_text=request_text(status.backfill),
        counts=counts_text(status),
        metric=metric,
        splits=[split for split in SPLITS if any(split in (row.metrics or {}) for row in status.rows)],
        rows=[row_values(row, metric) for row in status.rows],
        stages=stages,
        stage_rows=[(row.name, [stage_text(row, stage) for stage in stages]) for row in status.rows if row.stages],
        best=best(status, metric),
        means=means_over_seeds(status, metric),
        pictures=[(caption, Markup(one.svg(caption))) for caption, one in drawn if one is not None],  # texts escaped
        written_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    )


def metric_of(status: BackfillStatus) -> str:
    """Return the first metric that was measured; empty where none was."""
    splits = (values for row in status.rows for values in (row.metrics or {}).values())
    return next((name for values in splits for name in values), "")


def value_of(row: PartitionRow, split: str, metric: str) -> float | None:
    """Return a partition's metric on a split."""
    return (row.metrics or {}).get(split, {}).get(metric)


def known_values(rows: list[PartitionRow], split: str, metric: str) -> list[tuple[int, float]]:
    """Return the place among the rows and the value of each partition whose metric on a split is known."""
    values = ((place, value_of(row, split, metric)) for place, row in enumerate(rows))
    return [(place, value) for place, value in values if value is not None]


def request_text(backfill: Backfill) -> list[tuple[str, str]]:
    """Return what the backfill was asked, for people."""
    facts = [
        ("deployment", backfill.deployment),
        ("snapshots", f"{backfill.first} to {backfill.last}, every {backfill.every}" if backfill.every else ""),
        ("snapshots", ", ".join(backfill.at)),
        *((key, ", ".join(values)) for key, values in backfill.grid.items()),
        ("with", ", ".join(backfill.overrides)),
        ("reprocess", backfill.reprocess),
        ("at a time", str(backfill.max_active)),
        ("champion", "chosen by the gate" if backfill.promote else "left alone"),
    ]
    return [*((name, text) for name, text in facts if text), ("made", backfill.created_at)]


def row_values(row: PartitionRow, metric: str) -> dict[str, Any]:
    """Return a row of the table."""
    values = {split: value_of(row, split, metric) for split in SPLITS}
    return {
        "name": row.name,
        "state": row.state,
        "time": format_seconds(row.seconds) if row.seconds else "",
        "attempts": row.attempts or "",
        "metrics": {split: "" if value is None else f"{value:.4f}" for split, value in values.items()},
        "link": prefect_page(f"runs/flow-run/{row.flow_run_id}") if row.flow_run_id else "",
        "message": row.message if row.state in ("failed", "crashed") else "",
    }


def stage_text(row: PartitionRow, stage: str) -> str:
    """Return what a stage took, or that its result was there."""
    made = (row.stages or {}).get(stage)
    if made is None:
        return ""
    return "shared" if made["status"] == "cached" else format_seconds(made["seconds"])


def best(status: BackfillStatus, metric: str) -> str:
    """Name the partition with the best validation (else test) metric; empty where there is none."""
    lower = metric in ("rmse", "mae", "mse")
    for split in SPLITS:
        values = [(value, status.rows[place].name) for place, value in known_values(status.rows, split, metric)]
        if values:
            value, name = min(values) if lower else max(values)
            return f"{name}: {split} {metric} {value:.4f}"
    return ""


@styled
def metric_picture(status: BackfillStatus, metric: str) -> Canvas | None:
    """Lines over snapshots; over a grid a row of points for each combination."""
    rows = [row for row in status.rows if row.metrics]
    if not rows:
        return None
    return _over_grid(rows, metric) if status.backfill.grid else _over_time(rows, metric)


def _over_time(rows: list[PartitionRow], metric: str) -> Canvas:
    rows = sorted(rows, key=lambda row: row.name)
    canvas = Canvas(_WIDTH, 3.6)
    (ax,) = canvas.axes
    for split, marker in zip(SPLITS, "os", strict=True):
        points = known_values(rows, split, metric)
        if points:
            ax.plot(*zip(*points, strict=True), marker=marker, label=split)
    step = max(1, -(-len(rows) // _MAX_TICKS))
    ax.set_xticks(range(0, len(rows), step), [row.name for row in rows[::step]])
    ax.set(ylabel=metric, xlabel="snapshot")
    ax.legend()
    return canvas


def _over_grid(rows: list[PartitionRow], metric: str) -> Canvas:
    canvas = Canvas(_WIDTH, 1.2 + 0.26 * min(len(rows), _MAX_ROWS))
    (ax,) = canvas.axes
    shown = rows[:_MAX_ROWS]
    for split, marker in zip(SPLITS, "os", strict=True):
        points = known_values(shown, split, metric)
        if points:
            places, values = zip(*points, strict=True)
            ax.plot(values, places, marker=marker, linestyle="", label=split)
    ax.set_yticks(range(len(shown)), [row.name for row in shown])
    ax.invert_yaxis()
    ax.grid(axis="y", alpha=0.3)
    ax.set(xlabel=metric)
    ax.legend()
    return canvas


@styled
def time_picture(status: BackfillStatus) -> Canvas | None:
    """Bars of seconds."""
    rows = [row for row in status.rows if row.seconds][:_MAX_ROWS]
    if not rows:
        return None
    canvas = Canvas(_WIDTH, 1.0 + 0.26 * len(rows))
    (ax,) = canvas.axes
    ax.barh([row.name for row in rows], [row.seconds or 0.0 for row in rows])
    ax.invert_yaxis()
    ax.set(xlabel="seconds")
    return canvas


def means_over_seeds(status: BackfillStatus, metric: str) -> list[tuple[str, str, str, int]]:
    """Return each combination of a grid without `seed`: name, valid and test as mean ± deviation, number of seeds."""
    groups: dict[str, list[PartitionRow]] = {}
    if "seed" not in status.backfill.grid:
        return []
    for row in status.rows:
        if row.metrics:
            rest = " ".join(word for word in row.name.split() if not word.startswith("seed="))
            groups.setdefault(rest or "all", []).append(row)
    means = []
    for name, rows in groups.items():
        texts = []
        for split in SPLITS:
            values = [value for _, value in known_values(rows, split, metric)]
            spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
            texts.append(f"{statistics.fmean(values):.4f}{spread}" if values else "")
        means.append((name, texts[0], texts[1], len(rows)))
    return means
