"""`graphmill baseline`: mean and spread of a recipe over seeds.

Results are kept in `baselines/recipe-NAME.json` of the home under a digest of everything that decides them: asking
again runs only what is missing. `benchmarks.baseline` does the same for tables of published results.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from configs.errors import DataError, GraphmillError, RecipeError
from configs.load import find_recipe, load_own_recipe
from configs.schema import STAGES, Recipe
from flows.commands.recipes.run import RunRequest, call_flow, flow_server, run_recipe
from flows.records.run_record import RunRecord
from flows.terminal.console import err, format_seconds, out, table
from tasks.calls import load_stage
from tasks.publish.vectors import with_versions
from tasks.storage.artifacts import file_lock, write_atomic
from tasks.storage.file_names import file_name
from tasks.storage.home import Home
from tasks.storage.home_files.source_digests import SourceDigests

BASELINE_STAGES = STAGES[: STAGES.index("evaluate") + 1]
"""Up to evaluation: publishing would register a model for each of dozens of seeds."""
COLUMNS = ("split", "metric", "mean", "spread", "lowest", "highest")


@dataclass(frozen=True)
class PlannedRun:
    """One run of a recipe with a seed of its own."""

    row: str
    """What it is a run of."""
    number: int
    recipe: Path
    overrides: list[str]
    digest: str
    data: str = ""
    """Where to get the data."""


class Results:
    """Finished runs by digest: `baselines/NAME.json` of a home; several commands may add to it side by side."""

    def __init__(self, home: Home, name: str) -> None:
        """Read what is there."""
        self.path = home.root / "baselines" / f"{file_name(name)}.json"
        self.lock = home.locks / f"baselines-{file_name(name)}.lock"
        self.runs: dict[str, dict[str, Any]] = {}
        self._read()

    def add(self, planned: PlannedRun, record: RunRecord, seconds: float) -> None:
        """Keep a run's outcome."""
        with self.locked():
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

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Read what other commands have added, and keep them from adding more within the block."""
        with file_lock(self.lock):
            self._read()
            yield

    def _read(self) -> None:
        if self.path.exists():
            self.runs = json.loads(self.path.read_text(encoding="utf-8"))["runs"]


def run_baseline(home: Home, recipe: str, changes: list[str], seeds: int, *, only_list: bool, verbose: bool) -> bool:
    """Run a recipe with each seed that is missing, print mean and spread; returns whether every run succeeded.

    Raises RecipeError: the recipe or a change is wrong; nothing was run.
    """
    planned, results = plan_seeds(home, recipe, changes, seeds)
    failed = [] if only_list else run_missing(home, planned, results, verbose=verbose)
    done = [results.runs[run.digest] for run in planned if run.digest in results.runs]
    shown = table(*COLUMNS, right=COLUMNS[2:])
    measured = [(split, metric) for run in done for split, values in run["metrics"].items() for metric in values]
    for split, metric in dict.fromkeys(measured):
        values = [run["metrics"][split][metric] for run in done if metric in run["metrics"].get(split, {})]
        spread = f"± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
        figures = (f"{statistics.fmean(values):.4f}", spread, f"{min(values):.4f}", f"{max(values):.4f}")
        shown.add_row(split, metric, *figures)
    console = out()
    text = f"{planned[0].row}: {len(done)} of {len(planned)} seeds"
    if done:
        console.print(shown)
        seconds = format_seconds(statistics.fmean(run["train_seconds"] for run in done))
        console.print(f"{text}, {seconds} of training each; spread: standard deviation over seeds", markup=False)
        console.print(f"kept in {results.path}", markup=False, soft_wrap=True)
    else:
        console.print(f"{text} are done", markup=False)
    return not failed


def plan_seeds(home: Home, source: str, changes: list[str], seeds: int) -> tuple[list[PlannedRun], Results]:
    """Return a run for each seed, and what is known of earlier ones. Raises RecipeError."""
    path = find_recipe(source)
    wrong = next((text for text in changes if "=" not in text or text.startswith("seed=")), None)
    if wrong is not None:
        raise RecipeError(
            f"{wrong!r}: behind a recipe stand changes of the form section.key=value, but none of the seed, which "
            "goes from 0 on here (--seeds says how far)"
        )
    planned = []
    for seed in range(seeds):
        overrides = [*changes, f"seed={seed}"]
        recipe = load_own_recipe(str(path), overrides)
        name = " ".join([recipe.name, *changes])
        planned.append(PlannedRun(name, seed, path, overrides, identity(recipe, home)))
    return planned, Results(home, f"recipe-{recipe.name}")


def identity(recipe: Recipe, home: Home) -> str:
    """Return a digest of all that decides a recipe's metrics: options, versions of stages, content of the data."""
    recipe = with_versions(recipe, home)
    stages, digests = [load_stage(name) for name in BASELINE_STAGES], SourceDigests(home)
    content = [(stage.name, stage.version, stage.key_content(recipe, digests)) for stage in stages]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()[:24]


def run_missing(
    home: Home,
    planned: list[PlannedRun],
    results: Results,
    *,
    verbose: bool,
    after_each: Callable[[], object] = lambda: None,
) -> list[str]:
    """Run what has no result yet, with one Prefect server for all; returns the names of the runs that failed."""
    missing = [run for run in planned if run.digest not in results.runs]
    failed: list[str] = []
    if not missing:
        return failed
    with pipeline(home, verbose) as run_one:
        for number, run in enumerate(missing):
            err().print(f"{run.row}, run {run.number} ({number + 1} of {len(missing)})", style="bold", markup=False)
            began = time.perf_counter()
            try:
                record = run_one(RunRequest(str(run.recipe), run.overrides, only=list(BASELINE_STAGES)))
            except GraphmillError as error:
                where = f"; the data: {run.data}" if run.data and isinstance(error, DataError) else ""
                err().print(f"error: {run.row}: {error}{where}", style="red", markup=False)
                failed.append(f"{run.row} run {run.number}")
            else:
                results.add(run, record, time.perf_counter() - began)
            after_each()
    for name in failed:
        err().print(f"failed: {name}; its reason is above", style="red", markup=False)
    return failed


@contextmanager
def pipeline(home: Home, verbose: bool) -> Iterator[Callable[[RunRequest], RunRecord]]:
    """Give what runs a recipe, with one Prefect server for all of them."""
    with flow_server(home, verbose=verbose) as server:
        yield lambda request: call_flow(server, partial(run_recipe, home, request), verbose=verbose)
