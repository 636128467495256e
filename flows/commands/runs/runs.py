"""`graphmill runs`: which runs there were; and how a run is named on the command line."""

from __future__ import annotations

import datetime
import re
import time
from dataclasses import dataclass
from typing import Any

from configs.errors import RecipeError
from configs.matching import did_you_mean
from flows.records.run_record import RunRecord, all_runs, settled
from flows.terminal.console import format_seconds, out, table
from flows.terminal.options import parse_age
from tasks.publish.gate.rules import higher_is_better
from tasks.storage.home import Home

STATES = ("running", "completed", "failed", "cancelled")
_ID_SHOWN = 8
_LEAST_PREFIX = 4
_WIDE = 100  # columns of a terminal that has room for more than the figures


@dataclass(frozen=True)
class RunFilter:
    """Which runs are wanted, and in which order."""

    recipe: str | None = None
    status: str | None = None
    younger_than: str | None = None
    tag: str | None = None
    sort: str | None = None
    """`metric` (of the test split, where it was measured) or `split/metric`; None: newest first."""
    limit: int = 20


def list_runs(home: Home, chosen: RunFilter) -> list[RunRecord]:
    """Return runs; a run whose process was killed counts as failed. Raises RecipeError for an unknown name."""
    records = [settled(home, record) for record in all_runs(home)]
    asked: dict[str, tuple[str | None, list[str]]] = {
        "--recipe": (chosen.recipe, [name for r in records for name in (r.recipe, r.source)]),
        "--tag": (chosen.tag, [tag for r in records for tag in r.tags]),
        "--status": (chosen.status, list(STATES)),
    }
    for option, (value, names) in asked.items():
        if value is not None and value not in names:
            listed = ", ".join(sorted(set(filter(None, names)))) or "none"
            raise RecipeError(f"{option} {value!r}{did_you_mean(value, names)}: no run has it; there are {listed}")
    if chosen.younger_than is not None:
        limit = time.time() - parse_age(chosen.younger_than, "--since")
        records = [record for record in records if record.started.timestamp() >= limit]
    records = [
        record
        for record in records
        if chosen.recipe in (None, record.recipe, record.source)
        and chosen.status in (None, record.status)
        and (chosen.tag is None or chosen.tag in record.tags)
    ]
    if chosen.sort is not None:
        values = {record.id: metric_of(record, chosen.sort) for record in records}
        measured = [record for record in records if values[record.id] is not None]
        if not measured and records:
            metrics = sorted({f"{split}/{name}" for r in records for split, one in r.metrics.items() for name in one})
            raise RecipeError(
                f"--sort {chosen.sort!r}{did_you_mean(chosen.sort, metrics)}: no run has measured it; there are "
                f"{', '.join(metrics)}"
            )
        sign = -1.0 if higher_is_better(chosen.sort, "", True) else 1.0
        records = sorted(measured, key=lambda record: sign * (values[record.id] or 0.0))
    return records[: chosen.limit]


def metric_of(record: RunRecord, name: str) -> float | None:
    """Return a run's `split/metric`, or `metric` of the test split, else of the first that has it."""
    split, _, metric = name.rpartition("/")
    splits = [split] if split else sorted(record.metrics, key=lambda one: one != "test")
    values = (record.metrics[one][metric] for one in splits if metric in record.metrics.get(one, {}))
    return next(values, None)


def find_run(home: Home, name: str) -> RunRecord:
    """Return a run by id, the beginning of one, or a recipe's name: its latest run, `NAME~1` the one before.

    Raises RecipeError: there is no such run, or several.
    """
    records = [settled(home, record) for record in all_runs(home)]
    begun = [record for record in records if len(name) >= _LEAST_PREFIX and record.id.startswith(name)]
    if len(begun) == 1 or (begun and begun[0].id == name):
        return begun[0]
    if begun:
        raise RecipeError(f"{name!r} is the beginning of several runs' ids: {', '.join(record.id for record in begun)}")
    recipe, _, back = name.partition("~")
    of_recipe = [record for record in records if recipe in (record.recipe, record.source)]
    if back and not re.fullmatch(r"\d{1,4}", back):
        raise RecipeError(f"{name!r}: the number after ~ counts runs back from the latest, such as {recipe}~1")
    if of_recipe and int(back or 0) < len(of_recipe):
        return of_recipe[int(back or 0)]
    if of_recipe:
        raise RecipeError(f"{name!r}: {recipe} has run {len(of_recipe)} times only")
    recipes = sorted({record.recipe for record in records})
    raise RecipeError(
        f"no run {name!r}{did_you_mean(recipe, recipes)} in {home.root}; name an id (graphmill runs), its beginning, "
        f"or a recipe that ran here: {', '.join(recipes) or 'none'}"
    )


def run_json(record: RunRecord) -> dict[str, Any]:
    """Return what `--json` prints of a run."""
    names = ("id", "recipe", "status", "error", "started_at", "finished_at", "overrides", "tags", "metrics", "report")
    values = record.model_dump(mode="json")
    shown = {name: values[name] for name in names}
    return {**shown, "cached": record.cached, "mlflow_run_id": record.mlflow_run_id}


def show_runs(records: list[RunRecord], sort: str | None) -> None:
    """Print a line a run."""
    console = out()
    if not records:
        console.print("no runs")
        return
    names = {_metric_name(record, sort) for record in records} - {""}
    metric = names.pop() if len(names) == 1 else ""
    more = ("changes", "tags") if console.width >= _WIDE else ()
    columns = ("run", "recipe", "status", "began", "took", metric or "metric", *more)
    shown = table(*columns, right=("took", metric or "metric"))
    for record in records:
        status = f"{record.status}{', cached' if record.cached else ''}"
        began = record.started.astimezone()
        when = began.strftime("%m-%d %H:%M" if began.year == datetime.datetime.now().astimezone().year else "%Y-%m-%d")
        row = (record.id[:_ID_SHOWN], record.recipe, status, when, run_time(record))
        changes = " ".join(record.overrides) if record.status != "failed" else record.error[:80]
        name = _metric_name(record, sort)
        value = metric_of(record, name) if name else None
        figure = "" if value is None else f"{value:.4f}" if metric else f"{name} {value:.4f}"
        cells = (*row, figure, changes, " ".join(record.tags))
        shown.add_row(*cells[: len(columns)])
    console.print(shown, markup=False)


def run_time(record: RunRecord) -> str:
    """Return how long a run took, in words; empty while it runs."""
    if not record.finished_at:
        return ""
    ended = datetime.datetime.fromisoformat(record.finished_at)
    return format_seconds((ended - record.started).total_seconds())


def _metric_name(record: RunRecord, sort: str | None) -> str:
    splits = sorted(record.metrics, key=lambda one: one != "test")
    return sort or next(
        (f"{split}/{next(iter(record.metrics[split]))}" for split in splits if record.metrics[split]), ""
    )
