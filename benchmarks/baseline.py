"""Reference results, recipe by recipe and seed by seed, against what was published.

    python -m benchmarks.baseline gnn [KEYWORD ...] [--list] [--seeds N] [--data DIR] [--home DIR] [--verbose]

A table is a YAML file in `benchmarks/recipes/tables/`: rows of a recipe, a metric, the published figure, and how often
to run. Results are kept in `baselines/TABLE.json` of the home, as those of `graphmill baseline RECIPE` are.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from benchmarks.baseline_tables import RECIPES, ResultTable, Row, plan_runs, read_table, select_rows
from configs.errors import RecipeError, UserError
from configs.matching import did_you_mean
from configs.source_files import user_path
from flows.commands.recipes.baseline import PlannedRun, Results, run_missing
from flows.terminal.console import format_seconds, out, table
from flows.terminal.options import open_home
from tasks.storage.artifacts import write_atomic
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


def summarize(rows: dict[str, Row], planned: list[PlannedRun], results: Results) -> list[Summary]:
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


def goal_lines(found: ResultTable, summaries: list[Summary]) -> Iterator[str]:
    """Say how far the best row of each data set with a goal came."""
    for goal in found.goals:
        done = [s for s in summaries if s.row.dataset == goal.dataset and s.values]
        if done:
            best = max(done, key=lambda s: s.sign * s.mean)
            reached = "reached" if best.sign * (best.mean - goal.at_least) >= 0 else "not reached"
            yield f"{goal.dataset}: best is {best.row.model} with {best.mean:.4f}; goal {goal.at_least:g} {reached}"


def to_markdown(found: ResultTable, summaries: list[Summary]) -> str:
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


def show(found: ResultTable, summaries: list[Summary], path: Path | None) -> None:
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
        path = results.path.with_suffix(".md")
        with results.locked():
            write_atomic(path, to_markdown(found, summarize(found.rows, every, results)).encode())
        return path

    failed = run_missing(home, planned, results, verbose=request.verbose, after_each=keep)
    show(found, summarize(rows, planned, results), keep())
    return not failed


def use_data(data: Path | None) -> None:
    """Tell the recipes where the data lies."""
    if data is not None:
        os.environ["GRAPHMILL_DATA"] = str(user_path(data).resolve())


def main() -> int:
    """Run or list a table; returns 1 where a run failed, 2 for a mistake."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.baseline")
    parser.add_argument("table", help="of benchmarks/recipes/tables")
    parser.add_argument("keywords", nargs="*", metavar="KEYWORD", help="only rows that have all of these words")
    parser.add_argument("--list", action="store_true", help="show the rows and what is done; run nothing")
    parser.add_argument("--seeds", type=int, help="runs of each row, instead of its own")
    parser.add_argument("--data", type=Path, help="where the data sets are; default: $GRAPHMILL_DATA")
    parser.add_argument("--home", type=Path, help="as of graphmill")
    parser.add_argument("--verbose", action="store_true", help="show Prefect's log too")
    given = parser.parse_intermixed_args()
    request = BaselineRequest(given.table, given.keywords, given.seeds, given.data, given.verbose)
    try:
        home = open_home(given.home)
        if given.list:
            list_rows(home, request)
            return 0
        return 0 if run_baseline(home, request) else 1
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
