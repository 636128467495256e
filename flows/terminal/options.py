"""What commands of the command line share: common options, and the options that stand before the command."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tasks.storage.home import Home

HomeOption = Annotated[
    Path | None,
    typer.Option("--home", help="Folder of artifacts, cache and databases [env: GRAPHMILL_HOME; default: .graphmill]"),
]
NoPromoteOption = Annotated[
    bool, typer.Option("--no-promote", help="Publish a version, and leave the champion as it is.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object, the last line of stdout.")]
TrustOption = Annotated[
    list[str] | None,
    typer.Option(
        "--trust-code", metavar="SHA256", help="Let code of this digest run, now and later; may stand several times."
    ),
]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Show Prefect's log too.")]


class GlobalOptions:
    """Options that stand before the command, and what they came to."""

    home: Path | None = None
    home_named = False
    """Whether the user named the home on the command line, here or behind the command."""
    verbose = False
    debug = False
    opened: Path | None = None
    """The home that the command has opened."""
    takes_trust = False
    """Whether the command has the option --trust-code."""


global_options = GlobalOptions()


def open_home(home: Path | None, trust_code: list[str] | None = None) -> Home:
    """Open the home that the command names, and let code of the digests `trust_code` run in it. Raises RecipeError."""
    from configs.trust import allow
    from flows.terminal.room import check_address_space
    from tasks.storage.home import Home
    from tasks.storage.home_files.trusted_code import remember_in_home

    check_address_space()
    place = Home.open(home or global_options.home)
    remember_in_home(place)
    allow(trust_code or ())
    global_options.opened, global_options.home_named = place.root, (home or global_options.home) is not None
    global_options.takes_trust = trust_code is not None
    return place


def graphmill_command(*arguments: str) -> str:
    """Return how this very `graphmill` is called again, for the home of this command: a line that works when copied."""
    home = ["--home", str(global_options.opened)] if global_options.home_named and global_options.opened else []
    program, on_path = Path(sys.executable).parent / "graphmill", shutil.which("graphmill")
    if on_path is not None and Path(on_path).resolve() == program.resolve():
        name = "graphmill"
    else:
        name = str(program.relative_to(Path.cwd()) if program.is_relative_to(Path.cwd()) else program)
    return shlex.join([name, *home, *arguments])


def parse_age(text: str, option: str = "--older-than") -> float:
    """Return `7d`, `12h`, `30m`, `4w` in seconds. Raises RecipeError."""
    from configs.errors import RecipeError
    from configs.values.expectations import age_seconds

    try:
        return age_seconds(text)
    except ValueError as error:
        raise RecipeError(f"{option} {error}") from None
