"""Empty databases of Prefect and MLflow, made once by `make setup` and copied into each new home.

Making the tables takes each of them many seconds. Where there is no template of the installed version, as in an
environment that was set up in another way, they are made as before.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from tasks.storage.file_names import beside

Library = Literal["prefect", "mlflow"]


def template_path(library: Library) -> Path:
    """Return where the template of the installed version is, or is to be: in `GRAPHMILL_TEMPLATES`, else beside it."""
    folder = os.environ.get("GRAPHMILL_TEMPLATES") or Path(sys.prefix) / "share" / "graphmill"
    return Path(folder) / f"{library}-{version(library)}.db"


def copy_template(library: Library, place: Path) -> bool:
    """Copy the template to a place where no database is, whole or not at all; says whether there was one."""
    template = template_path(library)
    if place.exists() or not template.is_file():
        return False
    draft = beside(place, ".draft")
    shutil.copyfile(template, draft)
    draft.replace(place)
    return True


def keep_as_template(library: Library, database: Path) -> Path:
    """Make a template of a database that was just made and that nobody has open; returns its path."""
    template = template_path(library)
    template.parent.mkdir(parents=True, exist_ok=True)
    draft = beside(template, ".draft")
    draft.unlink(missing_ok=True)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("VACUUM INTO ?", (str(draft),))  # what is still in the write-ahead log too
    draft.replace(template)
    return template
