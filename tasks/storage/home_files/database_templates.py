"""Empty databases of Prefect and MLflow, made once by `make setup` and copied into each new home: seconds each.

Where there is no template of the installed version they are made as before.
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
from urllib.parse import quote

from tasks.storage.file_names import beside, file_name

Library = Literal["prefect", "mlflow"]


def template_path(library: Library) -> Path:
    """Return where the template of the installed version is, or is to be: in `GRAPHMILL_TEMPLATES`, else beside it."""
    folder = os.environ.get("GRAPHMILL_TEMPLATES") or Path(sys.prefix) / "share" / "graphmill"
    return Path(folder) / file_name(f"{library}-{version(library)}.db")


def copy_template(library: Library, place: Path) -> bool:
    """Copy the template to a place where no database is, whole or not at all; says whether there was a sound one."""
    template = template_path(library)
    if place.exists() or not template.is_file() or not os.access(template, os.R_OK):
        return False
    draft = beside(place, ".draft")
    try:
        shutil.copyfile(template, draft)
        if not is_sound(draft):
            return False
        draft.replace(place)
    finally:
        draft.unlink(missing_ok=True)
    return True


def is_sound(database: Path) -> bool:
    """Whether it is a whole SQLite file with a library's tables: a loss of power may have cut it short."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(database))}?mode=ro", uri=True)) as connection:
            whole = connection.execute("PRAGMA quick_check").fetchall() == [("ok",)]
            return whole and bool(connection.execute("SELECT version_num FROM alembic_version").fetchall())
    except sqlite3.DatabaseError:
        return False


def keep_as_template(library: Library, database: Path) -> Path:
    """Make a template of a database that was just made and that nobody has open; returns its path.

    Raises OSError and sqlite3.Error: its folder cannot be written to, or the disk is full.
    """
    template = template_path(library)
    template.parent.mkdir(parents=True, exist_ok=True)
    draft = beside(template, ".draft")
    draft.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("VACUUM INTO ?", (str(draft),))  # what is still in the write-ahead log too
        draft.replace(template)
    finally:
        draft.unlink(missing_ok=True)
    return template
