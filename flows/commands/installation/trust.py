"""`graphmill trust`: which code may run in a home."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from flows.terminal.options import HomeOption, JsonOption, global_options, open_home

if TYPE_CHECKING:
    from collections.abc import Iterator

app = typer.Typer()


@app.command()
def trust(
    code: Annotated[list[str] | None, typer.Argument(metavar="SHA256|FILE", help="Digest, or file.")] = None,
    forget: Annotated[bool, typer.Option("--forget", help="Take it back.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Let code run in this home, for workers and schedules too; without arguments list what may.

    Read it first: it does whatever you can do. What counts is its content: a file that changes has to be allowed anew.

    Examples: `graphmill trust my_model.py`; `graphmill trust --forget my_model.py`
    """
    from tasks.storage.home_files.trusted_code import TrustedCode

    trusted = TrustedCode(open_home(home))
    for source, digest in list(_digests(code or [])):
        if not forget:
            trusted.learn(digest, source)
            print(f"may run   {digest}  {source}")
        elif trusted.forget(digest):
            print(f"forgotten {digest}  {source}")
        else:
            print(f"not known {digest}  {source}")
    if code:
        return
    entries = trusted.entries()
    if as_json:
        print(json.dumps({"trusted": entries}))
        return
    for digest, entry in sorted(entries.items(), key=lambda item: item[1]["since"]):
        print(f"{digest}  {entry['since']}  {entry['source']}")


def _digests(words: list[str]) -> Iterator[tuple[str, str]]:
    """Yield where each digest comes from, and the digest. Raises RecipeError and DataError."""
    from configs.source_files import check_file, user_path
    from configs.trust import checked_digest
    from tasks.storage.artifacts import file_digest

    for word in words:
        path = user_path(word)
        if "/" in word or path.suffix or path.exists():
            check_file(path)
            yield str(path.resolve()), file_digest(path)
        else:
            yield "named by its sha256", checked_digest(word, "trust")


def how_to_go_on(arguments: list[str], digest: str) -> str:
    """Return the command that lets the code run and goes on where this one ended."""
    again = shlex.join(["graphmill", *arguments])
    if global_options.takes_trust:
        return f"{again} --trust-code {digest}"
    home = ["--home", str(global_options.opened)] if global_options.opened else []
    return f"{shlex.join(['graphmill', *home, 'trust', digest])} && {again}"
