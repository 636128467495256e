"""`graphmill baseline`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.terminal.options import HomeOption, VerboseOption, global_options, open_home

app = typer.Typer()


@app.command()
def baseline(
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE|RECIPE", help="Table of reference results (gnn, embedding), or a recipe (FILE.yaml)."
        ),
    ],
    keywords: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEYWORD", help="Only rows that have all of these words; of a recipe: changes, KEY=VALUE."
        ),
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Show the rows and what is done; run nothing.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, max=1000, help="Runs of each row, instead of its own; of a recipe: 5."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where the data sets are [env: GRAPHMILL_DATA].")
    ] = None,
    home: HomeOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Mean and spread over seeds, of published results or a recipe; what is done already is not run again.

    Examples: `graphmill baseline gnn cora`; `graphmill baseline my-graph.yaml train.epochs=50 --seeds 5`
    """
    from flows.baseline.command import BaselineRequest, list_rows, run_baseline
    from flows.baseline.own import is_recipe, run_own

    request = BaselineRequest(table, keywords or [], seeds, data, verbose or global_options.verbose)
    if is_recipe(table):
        if not run_own(open_home(home), request, only_list=only_list):
            raise typer.Exit(1)
    elif only_list:
        list_rows(open_home(home), request)
    elif not run_baseline(open_home(home), request):
        raise typer.Exit(1)
