"""What commands of the command line share: common options, and the options that stand before the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tasks.home import Home

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder of artifacts, cache and databases [env: GRAPHMILL_HOME; default: .graphmill]"),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, the last line of stdout.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show Prefect's log too.")]


class Before:
    """Options before the command."""

    home: Path | None = None
    verbose = False
    debug = False


before = Before()


def open_home(home: Path | None) -> Home:
    """Open the home that the command or the options before it name. Raises RecipeError where it cannot be used."""
    from configs.errors import RecipeError
    from flows.room import check_address_space
    from tasks.home import Home

    check_address_space()
    try:
        return Home.open(home or before.home)
    except OSError as error:
        raise RecipeError(f"the home folder cannot be used: {error}; choose another with --home DIR") from error
