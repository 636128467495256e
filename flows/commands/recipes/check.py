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
            found = check_data(recipe, home, reporter)
    finally:
        reporter.close()
    print_result(as_json, {"recipe": recipe.name, "ok": found.ok, **asdict(found)}, lambda: show_check(found))
    return found.ok


def show_check(found: DataCheck) -> None:
    """Print what was found; mistakes to stderr."""
    console, problems = out(), err()
    for mistake in found.mistakes:
        rows = f" ({mistake['rows']:,} such rows)" if mistake["rows"] > 1 else ""
        problems.print(f"error: {mistake['message']}{rows}", markup=False)
    for text in found.warnings:
        problems.print(f"warning: {text}", style="yellow", markup=False)
    if found.tables:
        console.print(_columns(found.tables), markup=False)
    for note in found.notes:
        console.print(f"{'note':<11} {note}", markup=False)
    for files, columns in found.unread.items():
        console.print(f"{'not read':<11} {files}: {listed(columns)}", markup=False)
    for what, counts in (("nodes", found.nodes), ("edges", found.edges), ("splits", found.splits)):
        if counts:
            console.print(
                f"{what:<11} " + ", ".join(f"{name} {count:,}" for name, count in counts.items()), markup=False
            )
    for what, count in found.adjusted.items():
        console.print(f"{'policy':<11} {what}: {count:,}", markup=False)
    if found.graph:
        graph = found.graph
        console.print(
            f"{'graph':<11} {graph['components']:,} connected components, the largest of "
            f"{graph['largest_component']:,} nodes; nodes that get no message: {graph['without_in_edge']:,}",
            markup=False,
        )
    for text in found.negatives:
        console.print(f"{'negatives':<11} {text.removeprefix('negatives ')}", markup=False)
    if found.unlabelled:
        console.print(f"{'labels':<11} {found.unlabelled:,} rows have none", markup=False)
    if found.classes:
        console.print(_counts("class", found.classes), markup=False)
    if found.relations:
        console.print(_counts("relation", found.relations), markup=False)
    if found.ok:
        warned = f"; {len(found.warnings)} warnings, above" if len(found.warnings) > 1 else ""
        warned = warned or ("; a warning, above" if found.warnings else "")
        console.print(f"the data is good: ingest and preprocess take it{warned}", markup=False)
    else:
        count = len(found.mistakes)
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
