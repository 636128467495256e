"""`graphmill inspect FILES`: a recipe proposed from tables, as YAML on stdout."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from configs.errors import RecipeError
from tasks.storage.artifacts import MANIFEST_NAME


def are_tables(places: Sequence[str]) -> bool:
    """Whether names are those of files and folders of tables, and not of runs, recipes or artifacts."""
    from tasks.ingest.database.proposal.tables import is_table

    return all(is_table(Path(place).name) or _is_folder_of_tables(Path(place).expanduser(), place) for place in places)


def _is_folder_of_tables(folder: Path, given: str) -> bool:
    """Whether it is a folder, and no artifact; a bare word may be a recipe that is called like a folder."""
    from tasks.ingest.database.proposal.tables import is_table

    if not folder.is_dir() or (folder / MANIFEST_NAME).is_file():
        return False
    return os.sep in given or given in (".", "..") or any(is_table(entry.name) for entry in folder.iterdir())


def print_proposal(places: Sequence[str], options: Mapping[str, Any]) -> None:
    """Print the recipe. Raises RecipeError for options of what `inspect` shows else, and where there is no table."""
    from tasks.ingest.database.proposal.recipe import propose_recipe

    for option, value in options.items():
        if value:
            raise RecipeError(f"{option} is for runs and artifacts; of tables a recipe is printed, as YAML")
    print(propose_recipe(places), end="")
