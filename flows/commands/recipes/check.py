"""`graphmill check`: what stands in a recipe's data, and what is wrong with it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from configs.matching import listed
from configs.schema import Recipe
from flows.commands.recipes.data_check import DataCheck, check_data
from flows.terminal.console import err, out, print_result, table
from flows.terminal.progress import Reporter
from tasks.processes import ending
from tasks.storage.home import Home

_SHOWN_ROWS = 30


def check_recipe(home: Home, recipe: Recipe, *, as_json: bool) -> bool:
    """Check the data of a recipe and print what was found; returns whether it is good."""
    reporter = Reporter()
    reporter.begin("check")
    try:
        with ending.prompt_ending():
            checked = check_data(recipe, home, reporter)
    finally:
        reporter.close()
    print_result(as_json, {"recipe": recipe.name, "ok": checked.ok, **asdict(checked)}, lambda: show_check(checked))
    return checked.ok


def show_check(checked: DataCheck) -> None:
    """Print what was found; mistakes to stderr."""
    console, problems = out(), err()
    for mistake in checked.mistakes:
        rows = f" ({mistake['rows']:,} such rows)" if mistake["rows"] > 1 else ""
        problems.print(f"error: {mistake['message']}{rows}", markup=False)
    for text in checked.warnings:
        problems.print(f"warning: {text}", style="yellow", markup=False)
    if checked.tables:
        console.print(_columns(checked.tables), markup=False)
    for note in checked.notes:
        console.print(f"{'note':<11} {note}", markup=False)
    for files, columns in checked.unread.items():
        console.print(f"{'not read':<11} {files}: {listed(columns)}", markup=False)
    for what, counts in (("nodes", checked.nodes), ("edges", checked.edges), ("splits", checked.splits)):
        if counts:
            console.print(
                f"{what:<11} " + ", ".join(f"{name} {count:,}" for name, count in counts.items()), markup=False
            )
    for what, count in checked.adjusted.items():
        console.print(f"{'policy':<11} {what}: {count:,}", markup=False)
    if checked.graph:
        graph = checked.graph
        console.print(
            f"{'graph':<11} {graph['components']:,} connected components, the largest of "
            f"{graph['largest_component']:,} nodes; nodes that get no message: {graph['without_in_edge']:,}",
            markup=False,
        )
    for text in checked.negatives:
        console.print(f"{'negatives':<11} {text.removeprefix('negatives ')}", markup=False)
    if checked.unlabelled:
        console.print(f"{'labels':<11} {checked.unlabelled:,} rows have none", markup=False)
    if checked.classes:
        console.print(_counts("class", checked.classes), markup=False)
    if checked.relations:
        console.print(_counts("relation", checked.relations), markup=False)
    if checked.ok:
        warned = f"; {len(checked.warnings)} warnings, above" if len(checked.warnings) > 1 else ""
        warned = warned or ("; a warning, above" if checked.warnings else "")
        console.print(f"the data is good: ingest and preprocess take it{warned}", markup=False)
    else:
        count = len(checked.mistakes)
        console.print("a mistake, above" if count == 1 else f"{count} mistakes, above", markup=False)


def _columns(tables: dict[str, dict[str, dict[str, Any]]]) -> Any:
    shown = table("table", "column", "kind", "rows", "empty", right=("rows", "empty"))
    for files, columns in tables.items():
        for name, column in columns.items():
            share = f"{100 * column['missing'] / column['rows']:.1f} %" if column["missing"] else ""
            shown.add_row(files, name, column["kind"], f"{column['rows']:,}", share)
    return shown


def _counts(what: str, rows: dict[str, dict[str, int]]) -> Any:
    splits = list(next(iter(rows.values())))
    shown = table(what, *splits, right=tuple(splits))
    for name, counts in list(rows.items())[:_SHOWN_ROWS]:
        shown.add_row(name, *(f"{counts[split]:,}" for split in splits))
    if len(rows) > _SHOWN_ROWS:
        shown.add_row(f"and {len(rows) - _SHOWN_ROWS} more", *("" for _ in splits))
    return shown
