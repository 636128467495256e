"""`graphmill check-leaks`: whether anything later than a moment reaches the model."""

from __future__ import annotations

import datetime
from dataclasses import asdict

from configs.errors import DataError
from configs.schema import Recipe
from flows.terminal.console import err, out, print_result
from flows.terminal.progress import Reporter
from tasks.leak_check.check import LABELS, LeakCheck, NoMomentsError, check_leaks
from tasks.processes import ending
from tasks.storage.home import Home

_SHOWN = 3
_WAY_OUT = "dataset.tables.TABLE.columns: {COLUMN: ignore} leaves it out"


def find_leaks(home: Home, recipe: Recipe, num_seeds: int, *, as_json: bool) -> bool:
    """Check a recipe and print what was found; returns whether nothing leaks."""
    check = _check(home, recipe, num_seeds)
    print_result(as_json, {"recipe": recipe.name, "ok": check.ok, **asdict(check)}, lambda: show_leaks(check))
    return check.ok


def refuse_leaks(home: Home, recipe: Recipe, num_seeds: int, *, quiet: bool) -> None:
    """Check a recipe before it is run, and print what was found unless `quiet`. Raises DataError: something leaks."""
    try:
        check = _check(home, recipe, num_seeds)
    except NoMomentsError as error:
        err().print(f"nothing to check: {error}", style="dim", markup=False)
        return
    if not quiet:
        show_leaks(check)
    if not check.ok:
        said = [f"{what} ({count:,} of {check.seeds:,} seeds)" for what, count in check.changed.items()]
        said += check.columns
        more = f" and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
        raise DataError(
            f"what comes after a moment reaches the model: {', '.join(said[:_SHOWN])}{more}; nothing was run; "
            + ("graphmill check-leaks says more" if check.changed else _WAY_OUT)
        )


def _check(home: Home, recipe: Recipe, num_seeds: int) -> LeakCheck:
    reporter = Reporter()
    reporter.begin("check-leaks")
    try:
        with ending.prompt_ending():
            return check_leaks(recipe, home, num_seeds, reporter)
    finally:
        reporter.close()


def show_leaks(check: LeakCheck) -> None:
    """Print what was found; leaks to stderr."""
    console = out()
    moments = ", ".join(_text(moment, check.unit) for moment in check.moments)
    console.print(
        f"{'changed':<8} the tables' rows (other cells, some gone, some new) and labels from {moments} on; inputs of "
        f"{check.seeds:,} seeds of then and before compared to the bit",
        markup=False,
    )
    if check.timeless:
        console.print(
            f"{'note':<8} {', '.join(check.timeless)}: no time, so their rows count as always there; were they?",
            markup=False,
        )
    for what, count in check.changed.items():
        of = "" if what == LABELS else f" of {check.seeds:,}"
        err().print(f"{'leak':<8} {what}: not the same for {count:,}{of} seeds", markup=False)
    for text in check.columns:
        err().print(f"{'leak':<8} {text}: is it the label, or written after it was known? {_WAY_OUT}", markup=False)
    if check.ok:
        console.print(f"{'ok':<8} nothing of it reaches the model", markup=False)


def _text(moment: int, unit: str) -> str:
    if unit != "seconds":
        return str(moment)
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%d %H:%M").removesuffix(" 00:00")
