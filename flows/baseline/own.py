"""`graphmill baseline FILE.yaml`: mean and spread over seeds of a recipe of one's own.

Kept and resumed as the runs of a shipped table are, in `baselines/recipe-NAME.json` of the home.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from configs.errors import RecipeError
from configs.load import find_recipe, load_own_recipe, shipped_recipes
from flows.baseline.command import BaselineRequest, Results, run_missing, show_failed, use_data
from flows.baseline.table import Planned, identity
from flows.terminal.console import format_seconds, out, table
from tasks.storage.home import Home

_SEEDS = 5
COLUMNS = ("split", "metric", "mean", "spread", "lowest", "highest")


def is_recipe(name: str) -> bool:
    """Whether what `baseline` was given is a recipe rather than a table's name."""
    return name.endswith((".yaml", ".yml")) or name in shipped_recipes()


def run_own(home: Home, request: BaselineRequest, *, only_list: bool = False) -> bool:
    """Run the recipe with each seed that is missing, print mean and spread; returns whether every run succeeded.

    Raises:
        RecipeError: the recipe or an override is wrong; nothing was run.
    """
    use_data(request.data)
    planned, results = plan_seeds(home, request)
    failed = [] if only_list else run_missing(home, planned, results, verbose=request.verbose)
    done = [results.runs[run.digest] for run in planned if run.digest in results.runs]
    shown = table(*COLUMNS, right=COLUMNS[2:])
    for (split, metric), values in _by_metric(done).items():
        shown.add_row(split, metric, *_figures(values))
    console = out()
    if done:
        console.print(shown)
        seconds = format_seconds(statistics.fmean(run["train_seconds"] for run in done))
        console.print(
            f"{planned[0].row}: {len(done)} of {len(planned)} seeds, {seconds} of training each; spread: standard "
            "deviation over seeds",
            markup=False,
        )
        console.print(f"kept in {results.path}", markup=False, soft_wrap=True)
    else:
        console.print(f"{planned[0].row}: 0 of {len(planned)} seeds are done", markup=False)
    show_failed(failed)
    return not failed


def plan_seeds(home: Home, request: BaselineRequest) -> tuple[list[Planned], Results]:
    """Return a run for each seed, and what is known of earlier ones. Raises RecipeError."""
    path, changes = find_recipe(request.table), request.keywords
    wrong = next((text for text in changes if "=" not in text or text.startswith("seed=")), None)
    if wrong is not None:
        raise RecipeError(
            f"{wrong!r}: behind a recipe stand changes of the form section.key=value, but none of the seed, which "
            "goes from 0 on here (--seeds says how far)"
        )
    planned = []
    for seed in range(request.runs or _SEEDS):
        overrides = [*changes, f"seed={seed}"]
        recipe = load_own_recipe(str(path), overrides)
        name = " ".join([recipe.name, *changes])
        planned.append(Planned(name, seed, Path(path), overrides, identity(recipe, home)))
    return planned, Results(home, f"recipe-{recipe.name}")


def _by_metric(done: list[dict[str, Any]]) -> dict[tuple[str, str], list[float]]:
    """Return (split, metric) to the values of the runs."""
    values: dict[tuple[str, str], list[float]] = {}
    for run in done:
        for split, found in run["metrics"].items():
            for metric, value in found.items():
                values.setdefault((split, metric), []).append(value)
    return values


def _figures(values: list[float]) -> list[str]:
    spread = f"± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return [f"{statistics.fmean(values):.4f}", spread, f"{min(values):.4f}", f"{max(values):.4f}"]
