"""`graphmill baseline`: reference results, recipe by recipe and seed by seed, against what was published.

A table is a YAML file in `benchmarks/recipes/tables/`: rows of a recipe, a metric, the published figure, and how often
to run. Each run is an ordinary pipeline run up to evaluation, so one that was killed goes on from its last checkpoint.
Results are kept in `baselines/TABLE.json` of the home under a digest of everything that decides them: asking again runs
only what is missing or has changed.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from configs.errors import DataError, GraphmillError, RecipeError
from configs.matching import did_you_mean
from configs.source_files import user_path
from flows.baseline.table import BASELINE_STAGES, RECIPES, Planned, Row, Table, plan_runs, read_table, select_rows
from flows.commands.recipes.run import RunRequest, call_flow, flow_server, run_recipe
from flows.records.run_record import RunRecord
from flows.terminal.console import err, format_seconds, out, table
from tasks.storage.artifacts import file_lock, write_atomic
from tasks.storage.file_names import file_name
from tasks.storage.home import Home

_LOWER_IS_BETTER = frozenset({"rmse", "mae", "mse"})


@dataclass(frozen=True)
class BaselineRequest:
    """What the command line asks for."""

    table: str
    keywords: list[str] = field(default_factory=list)
    runs: int | None = None
    data: Path | None = None
    verbose: bool = False
    folder: Path = RECIPES
    """Where the recipes are, and their tables."""


class Results:
    """Finished runs by digest: `baselines/TABLE.json` of a home; several commands may add to it side by side."""

    def __init__(self, home: Home, name: str) -> None:
        """Read what is there."""
        self.home = home
        self.path = home.root / "baselines" / f"{file_name(name)}.json"
        self.lock = home.locks / f"baselines-{file_name(name)}.lock"
        self.runs: dict[str, dict[str, Any]] = {}
        self._read()

    def add(self, planned: Planned, record: RunRecord, seconds: float) -> None:
        """Keep a run's outcome."""
        with self._locked():
            self.runs[planned.digest] = {
                "row": planned.row,
                "run": planned.number,
                "overrides": planned.overrides,
                "metrics": {**record.metrics, "test": {**record.metrics.get("test", {}), **record.reported}},
                "train_seconds": record.stages["train"].build_seconds,
                "seconds": round(seconds, 1),
                "finished_at": record.finished_at,
            }
            write_atomic(self.path, json.dumps({"runs": self.runs}, indent=1).encode())

    def write_table(self, make_text: Callable[[], str]) -> Path:
        """Write the Markdown table beside the results, made of all that there are now."""
        path = self.path.with_suffix(".md")
        with self._locked():
            write_atomic(path, make_text().encode())
        return path

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Read what other commands have added, and keep them from adding more within the block."""
        with file_lock(self.lock):
            self._read()
            yield

    def _read(self) -> None:
        if self.path.exists():
            self.runs = json.loads(self.path.read_text(encoding="utf-8"))["runs"]


@dataclass(frozen=True)
class Summary:
    """What the finished runs of a row come to."""

    name: str
    row: Row
    values: list[float]
    seconds: list[float]

    @property
    def mean(self) -> float:
        """Mean over runs."""
        return statistics.fmean(self.values)

    @property
    def spread(self) -> float | None:
        """Standard deviation over runs (of a sample); None for a single one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else None

    @property
    def sign(self) -> int:
        """1 where higher is better, else -1."""
        return -1 if self.row.metric in _LOWER_IS_BETTER else 1

    @property
    def verdict(self) -> str:
        """Compare with what was published."""
        tolerance = self.row.tolerance or self.row.spread
        if not self.values or self.row.published is None or tolerance is None:
            return ""
        gain = self.sign * (self.mean - self.row.published)
        if gain > tolerance:
            return "better"
        return "within" if gain >= -tolerance else "below"

    def cells(self) -> tuple[str, ...]:
        """Return the row as texts."""
        row = self.row
        ours = pair(self.mean, self.spread) if self.values else ""
        published = "" if row.published is None else pair(row.published, row.spread)
        tolerance = row.tolerance or row.spread
        seconds = format_seconds(statistics.fmean(self.seconds)) if self.seconds else ""
        within = "" if tolerance is None or row.published is None else f"{tolerance:g}"
        runs = f"{len(self.values)} of {row.runs}"
        return row.dataset, row.model, row.metric, ours, runs, published, within, self.verdict, seconds


COLUMNS = ("data set", "model", "metric", "ours", "runs", "published", "tolerance", "verdict", "training")


def pair(mean: float, spread: float | None) -> str:
    """Return `mean ± spread`."""
    return f"{mean:.4f}" if spread is None else f"{mean:.4f} ± {spread:.4f}"


def summarize(rows: dict[str, Row], planned: list[Planned], results: Results) -> list[Summary]:
    """Collect the finished runs of each row, once for each of its metrics. Raises RecipeError for one they lack."""
    summaries = []
    for name, row in rows.items():
        done = [results.runs[p.digest] for p in planned if p.row == name and p.digest in results.runs]
        seconds = [run["train_seconds"] for run in done]
        for one in row.by_metric():
            found = [run["metrics"].get("test", {}) for run in done]
            for measured in found:
                if one.metric not in measured:
                    raise RecipeError(
                        f"row {name} names the metric {one.metric}{did_you_mean(one.metric, measured)}; its runs have "
                        f"{', '.join(measured) or 'none'} of the test split"
                    )
            summaries.append(Summary(name, one, [measured[one.metric] for measured in found], seconds))
    return summaries


def goal_lines(found: Table, summaries: list[Summary]) -> Iterator[str]:
    """Say how far the best row of each data set with a goal came."""
    for goal in found.goals:
        done = [s for s in summaries if s.row.dataset == goal.dataset and s.values]
        if done:
            best = max(done, key=lambda s: s.sign * s.mean)
            reached = "reached" if best.sign * (best.mean - goal.at_least) >= 0 else "not reached"
            yield f"{goal.dataset}: best is {best.row.model} with {best.mean:.4f}; goal {goal.at_least:g} {reached}"


def to_markdown(found: Table, summaries: list[Summary]) -> str:
    """Return the table as Markdown, with sources below it."""
    lines = [f"# {found.title}", "", f"| {' | '.join(COLUMNS)} |", "|---|---|---|--:|--:|--:|--:|---|--:|"]
    lines += [f"| {' | '.join(summary.cells())} |" for summary in summaries]
    lines += ["", *(f"- {line}" for line in goal_lines(found, summaries))]
    by_source: dict[str, list[str]] = {}
    for s in summaries:
        named = by_source.setdefault(s.row.source, [])
        if (name := f"{s.row.dataset} {s.row.model}") not in named:
            named.append(name)
    lines += [f"- {', '.join(names)}: {source}" for source, names in by_source.items() if source]
    return "\n".join(lines) + "\n"


def show(found: Table, summaries: list[Summary], path: Path | None) -> None:
    """Print the table."""
    several = any(before.name == after.name for before, after in pairwise(summaries))
    left_out = ("training", "tolerance") if several else ("metric", "tolerance")  # what a terminal has no room for
    names = [name for name in COLUMNS if name not in left_out]
    shown = table(*names, right=tuple(name for name in ("ours", "runs", "published", "training") if name in names))
    for summary in summaries:
        cells = dict(zip(COLUMNS, summary.cells(), strict=True))
        shown.add_row(*(cells[name] for name in names))
    console = out()
    console.print(shown)
    for line in goal_lines(found, summaries):
        console.print(line, markup=False)
    if path is not None:
        console.print(f"kept in {path} and {path.with_suffix('.json').name}", markup=False)


def list_rows(home: Home, request: BaselineRequest) -> None:
    """Print the selected rows and which of their runs are done; runs nothing."""
    use_data(request.data)
    found = read_table(request.table, request.folder)
    rows = select_rows(found, request.keywords)
    results = Results(home, request.table)
    show(found, summarize(rows, plan_runs(rows, request.runs, request.folder, home), results), None)
    console = out()
    for name, row in rows.items():
        console.print(f"{name}: {' '.join(sorted(row.words(name) - {name}))}", markup=False)


def run_baseline(home: Home, request: BaselineRequest) -> bool:
    """Run what is missing, print the table; returns whether every run succeeded."""
    use_data(request.data)
    found = read_table(request.table, request.folder)
    rows = select_rows(found, request.keywords)
    planned, results = plan_runs(rows, request.runs, request.folder, home), Results(home, request.table)
    every = plan_runs(found.rows, None, request.folder, home)

    def keep() -> Path:
        """Write all rows, those of earlier selections too."""
        return results.write_table(lambda: to_markdown(found, summarize(found.rows, every, results)))

    failed = run_missing(home, planned, results, verbose=request.verbose, after_each=keep)
    show(found, summarize(rows, planned, results), keep())
    show_failed(failed)
    return not failed


def show_failed(names: list[str]) -> None:
    """Name the runs that failed."""
    for name in names:
        err().print(f"failed: {name}; its reason is above", style="red", markup=False)


def run_missing(
    home: Home,
    planned: list[Planned],
    results: Results,
    *,
    verbose: bool,
    after_each: Callable[[], object] = lambda: None,
) -> list[str]:
    """Run what has no result yet and keep what comes of it; returns the names of the runs that failed."""
    missing = [run for run in planned if run.digest not in results.runs]
    failed = []
    if missing:
        with _pipeline(home, verbose) as run_recipe:
            for number, run in enumerate(missing):
                err().print(f"{run.row}, run {run.number} ({number + 1} of {len(missing)})", style="bold", markup=False)
                if not _run_one(run, run_recipe, results):
                    failed.append(f"{run.row} run {run.number}")
                after_each()
    return failed


def use_data(data: Path | None) -> None:
    """Tell the recipes where the data lies."""
    if data is not None:
        os.environ["GRAPHMILL_DATA"] = str(user_path(data).resolve())


def _run_one(run: Planned, run_recipe: Callable[[RunRequest], RunRecord], results: Results) -> bool:
    """Run one; what cannot run is said, and does not keep the others from running."""
    began = time.perf_counter()
    try:
        record = run_recipe(RunRequest(str(run.recipe), run.overrides, only=list(BASELINE_STAGES)))
    except GraphmillError as error:
        where = f"; the data: {run.data}" if run.data and isinstance(error, DataError) else ""
        err().print(f"error: {run.row}: {error}{where}", style="red", markup=False)
        return False
    results.add(run, record, time.perf_counter() - began)
    return True


@contextmanager
def _pipeline(home: Home, verbose: bool) -> Iterator[Callable[[RunRequest], RunRecord]]:
    """Give what runs a recipe, with one Prefect server for all of them."""
    with flow_server(home, verbose=verbose) as server:
        yield lambda request: call_flow(server, partial(run_recipe, home, request), verbose=verbose)
