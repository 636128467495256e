"""`graphmill check-leaks`: whether anything later than a moment reaches the model."""

from __future__ import annotations

import datetime
from dataclasses import asdict

from configs.schema import Recipe
from flows.terminal.console import Reporter, err, out, print_result
from flows.terminal.progress import ReporterListener
from tasks.leak_check.check import LeakCheck, check_leaks
from tasks.processes import ending
from tasks.storage.home import Home


def find_leaks(home: Home, recipe: Recipe, num_seeds: int, *, as_json: bool) -> bool:
    """Check a recipe and print what was found; returns whether nothing leaks."""
    reporter = Reporter()
    reporter.start("check-leaks")
    try:
        with ending.prompt_ending():
            found = check_leaks(recipe, home, num_seeds, ReporterListener(reporter))
    finally:
        reporter.close()
    print_result(as_json, {"recipe": recipe.name, "ok": found.ok, **asdict(found)}, lambda: show_leaks(found))
    return found.ok


def show_leaks(found: LeakCheck) -> None:
    """Print what was found; leaks to stderr."""
    console = out()
    moments = ", ".join(_text(moment, found.unit) for moment in found.moments)
    console.print(
        f"{'changed':<8} all cells, edges and labels from {moments} on; inputs of {found.seeds:,} seeds of then and "
        "before compared to the bit",
        markup=False,
    )
    if found.timeless:
        console.print(
            f"{'note':<8} {', '.join(found.timeless)}: no time, so their rows count as always there; were they?",
            markup=False,
        )
    for what, count in found.changed.items():
        err().print(f"{'leak':<8} {what}: not the same for {count:,} of {found.seeds:,} seeds", markup=False)
    for text in found.columns:
        err().print(f"{'leak':<8} {text}: is it the label, or written after it was known?", markup=False)
    if found.ok:
        console.print(f"{'ok':<8} nothing of it reaches the model", markup=False)


def _text(moment: int, unit: str) -> str:
    """Return a moment of seconds since 1970 as a date; another unit's number as it is."""
    if unit != "seconds":
        return str(moment)
    return datetime.datetime.fromtimestamp(moment, datetime.UTC).strftime("%Y-%m-%d %H:%M").removesuffix(" 00:00")
