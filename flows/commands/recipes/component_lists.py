"""Commands that list what a recipe can name."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from flows.terminal.options import JsonOption

app = typer.Typer()


def _add_list(plural: str, what: str) -> None:

    @app.command(plural, help=f"List {what}.\n\nWith a name: its options, as a recipe says them.")
    def list_components(
        name: Annotated[str | None, typer.Argument(metavar="NAME", help="Show the options of this one.")] = None,
        as_json: JsonOption = False,
    ) -> None:
        from flows.commands.recipes.components import components_json, show_component, show_components

        if as_json:
            print(json.dumps({plural: components_json(plural, name)}))
        elif name is None:
            show_components(plural)
        else:
            show_component(plural, name)


_add_list("datasets", "kinds of data sets")
_add_list("transforms", "transforms of features and edges")
_add_list("texts", "encoders of texts")
_add_list("partitioners", "partitioners")
_add_list("models", "models")
_add_list("loaders", "loaders, which make the mini-batches")
_add_list("losses", "losses: what scores are to be like")
_add_list("schedules", "schedules of the learning rate")
_add_list("embeddings", "kinds of learnt node embeddings")
_add_list("strategies", "strategies, by which ranks share the work")
_add_list("evaluators", "evaluators, which compute metrics")
_add_list("explainers", "explainers, which say what moved a score")
