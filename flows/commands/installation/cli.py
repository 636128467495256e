"""Commands on a home: whether the installation is sound, what can go."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal.options import HomeOption, JsonOption, open_home

app = typer.Typer()


@app.command()
def doctor(home: HomeOption = None) -> None:
    """Check this installation: each line is ok, or says how to mend it."""
    from flows.commands.installation.doctor import examine

    if not examine(open_home(home)):
        raise typer.Exit(1)


@app.command()
def clean(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Keep what runs of this age used: 12h, 7d, 4w.")
    ] = "7d",
    keep_versions: Annotated[
        int | None,
        typer.Option(
            "--keep-versions",
            metavar="N",
            min=1,
            help="Also remove older versions of each registered model than its last N, with their MLflow runs.",
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, remove nothing.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Remove artifacts that no run needs: neither the latest successful run of a recipe nor a younger one.

    With `--keep-versions` a version stays that has an alias, was champion before the present one, or is younger or in
    use as vectors.
    """
    from flows.commands.installation.clean import clean_home, show_removed
    from flows.terminal.console import print_result
    from flows.terminal.options import parse_age

    removed = clean_home(open_home(home), parse_age(older_than), dry_run=dry_run, keep_versions=keep_versions)
    values = {
        "removed": [
            {"what": one.what, "path": str(one.path), "bytes": one.num_bytes, "reason": one.reason} for one in removed
        ],
        "bytes": sum(item.num_bytes for item in removed),
    }
    print_result(as_json, values, lambda: show_removed(removed, dry_run=dry_run))
