"""The SQLite file in which Prefect keeps a home's history, where nobody named another database."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

from configs.errors import StageError
from tasks.storage.artifacts import file_lock
from tasks.storage.home import Home
from tasks.storage.home_files.database_templates import copy_template

DATABASE_VARIABLES = ("PREFECT_API_DATABASE_CONNECTION_URL", "PREFECT_SERVER_DATABASE_CONNECTION_URL")
"""Variables of the environment that name another one."""


def named_elsewhere() -> str:
    """Return the variable that names another database than a home's; empty where none does."""
    return next(filter(os.environ.get, DATABASE_VARIABLES), "")


class PrefectDatabase:
    """A home's database; a mark beside it says that its tables are whole, and of the installed version of Prefect."""

    def __init__(self, home: Home) -> None:
        """Nothing is read yet."""
        self.path = home.prefect / "prefect.db"
        self._lock = home.locks / "prefect-database.lock"

    @property
    def _mark(self) -> Path:
        from importlib.metadata import version

        return self.path.with_name(f".database-{version('prefect')}")

    @property
    def is_made(self) -> bool:
        """Whether this version's tables are there."""
        return self._mark.exists()

    @property
    def is_older(self) -> bool:
        """Whether another version's tables are there, which this one has yet to migrate."""
        return not self.is_made and any(self.path.parent.glob(".database-*"))

    def mark_as_made(self) -> None:
        """Say that this version's tables are there."""
        self._mark.touch()

    def making(self) -> contextlib.AbstractContextManager[object]:
        """Let nobody else make the tables within the block."""
        return file_lock(self._lock)

    def copy_template(self) -> None:
        """Take the tables that were made at set-up, in a new home. One that is gone its owner removed, for a reason."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not (self.is_made or self.is_older) and copy_template("prefect", self.path):
            self.mark_as_made()

    def check(self) -> None:
        """Have a database that is gone made anew. Raises StageError where it is damaged."""
        if not self.is_made or named_elsewhere():
            return
        try:
            there = self.path.exists()
            if there:
                place = f"file:{quote(str(self.path))}?mode=ro"
                with contextlib.closing(sqlite3.connect(place, uri=True)) as connection:
                    there = bool(
                        connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchall()
                    )
        except sqlite3.OperationalError:  # somebody has it locked
            return
        except sqlite3.DatabaseError as error:
            raise StageError(
                f"{self.path}: {error}; put a backup in its place, or move it away with {self.path.name}-wal and "
                f"{self.path.name}-shm: the next run makes a new one. It holds the history of runs, deployments and "
                "notification channels, but no artifacts and no models"
            ) from error
        if not there:
            self._mark.unlink(missing_ok=True)

    def set_aside(self) -> None:
        """Rename what cannot be opened, so that the next server makes new tables."""
        for path in (self.path, Path(f"{self.path}-wal"), Path(f"{self.path}-shm")):
            if path.exists():
                path.replace(path.with_name(f"{path.name}.broken"))
