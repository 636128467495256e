"""Commands on what was made: runs, their stages and differences, registered versions, the champion."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.terminal.options import HomeOption, JsonOption, open_home

app = typer.Typer()


@app.command()
def runs(
    recipe: Annotated[str | None, typer.Argument(metavar="RECIPE", help="Only runs of this recipe.")] = None,
    status: Annotated[str | None, typer.Option("--status", help="running, completed, failed or cancelled.")] = None,
    since: Annotated[str | None, typer.Option("--since", metavar="AGE", help="Younger than: 12h, 7d, 4w.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only runs with this tag.")] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", metavar="METRIC", help="Best first by accuracy, test/accuracy, ...")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 20,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """List runs, newest first or best first.

    Examples: `graphmill runs`; `graphmill runs quickstart --status completed --since 7d --sort valid/accuracy`
    """
    from flows.commands.runs.runs import RunFilter, list_runs, run_json, show_runs
    from flows.terminal.console import print_result

    records = list_runs(open_home(home), RunFilter(recipe, status, since, tag, sort, limit))
    print_result(as_json, {"runs": [run_json(record) for record in records]}, lambda: show_runs(records, sort))


@app.command()
def inspect(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME [STAGE] | FILES",
            help="A run's id or a recipe (its latest run), and a stage of it; an artifact's key or folder; or files "
            "and folders of tables, for which a recipe is proposed.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write the artifact's plots into this folder.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file with its sha256.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Show a run and its stages, or an artifact: `inspect quickstart`, then `inspect quickstart train -o plots`.

    Of files and folders of tables (Parquet, CSV, TSV, DuckDB), print a recipe for the data set `database`, with what is
    unsure about it: `graphmill inspect data/ > shop.yaml`.
    """
    from flows.commands.recipes.proposal import are_tables, print_proposal
    from flows.commands.runs.inspection import Found, find, show_artifact, show_run, write_plots

    if are_tables(what):
        print_proposal(what, {"--output": output, "--verify": verify, "--json": as_json})
        return
    place = open_home(home)
    artifact = find(place, what, deep=verify)
    if as_json:
        print((artifact.manifest if isinstance(artifact, Found) else artifact).model_dump_json())
    elif isinstance(artifact, Found):
        show_artifact(place, artifact, verified=verify)
    else:
        show_run(place, artifact)
    if output is not None and isinstance(artifact, Found):
        write_plots(artifact, output)


@app.command()
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="Run id, its beginning, or a recipe (its latest run).")],
    second: Annotated[str, typer.Argument(metavar="B", help="Likewise; RECIPE~1 is the run before the latest.")],
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Say how two runs differ in configuration, data and metrics.

    Examples: `graphmill compare quickstart~1 quickstart`; `graphmill compare 3f2a 91bc --json`
    """
    from flows.commands.runs.compare import compare_runs, show_comparison
    from flows.commands.runs.runs import find_run
    from flows.terminal.console import print_result

    place = open_home(home)
    compared = compare_runs(place, find_run(place, first), find_run(place, second))
    print_result(as_json, compared, lambda: show_comparison(compared))


@app.command()
def versions(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Of this registered model.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Also when the champion changed, and how.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """List registered models and their versions, and which is champion.

    Examples: `graphmill versions`; `graphmill versions quickstart --history`
    """
    from flows.commands.runs.versions import champion_history, list_versions, show_history, show_versions, version_json
    from flows.services.environment import open_connected_home
    from flows.terminal.console import print_result

    place = open_connected_home(home)
    versions_of_it = list_versions(place, name)
    moves = {model: champion_history(place, model) for model in versions_of_it} if history else {}
    values = {
        model: {"versions": list(map(version_json, its_versions)), **({"history": moves[model]} if history else {})}
        for model, its_versions in versions_of_it.items()
    }

    def show() -> None:
        show_versions(versions_of_it)
        for changes in moves.values():
            show_history(changes)

    print_result(as_json, {"models": values}, show)


@app.command()
def promote(
    model: Annotated[str, typer.Argument(metavar="NAME@VERSION", help="Registered model and version.")],
    force: Annotated[bool, typer.Option("--force", help="Also one that does not beat its controls.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Make a version champion: `graphmill promote quickstart@3`. One that is champion stays so.

    A model that is no better than a control (the majority, a linear model on the rows' own features) needs `--force`.
    """
    from flows.commands.runs.versions import promote as move
    from flows.commands.runs.versions import show_change
    from flows.services.environment import open_connected_home
    from flows.terminal.console import print_result

    change = move(open_connected_home(home), model, force=force)
    print_result(as_json, change, lambda: show_change(change))


@app.command()
def rollback(
    model: Annotated[str, typer.Argument(metavar="NAME", help="Registered model.")],
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Take the last change of champion back: `graphmill rollback quickstart`. A second time it changes nothing."""
    from flows.commands.runs.versions import roll_back, show_change
    from flows.services.environment import open_connected_home
    from flows.terminal.console import print_result

    change = roll_back(open_connected_home(home), model)
    print_result(as_json, change, lambda: show_change(change))
