"""Reading the model registry: through mlflow, or straight from the home's SQLite file, without a second of imports.

The file is read where its tables are of the revision that this module was written for, and never written; else, and for
every other store, mlflow itself is asked.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from configs.errors import RecipeError, StageError
from tasks.publish.tracking.store_uris import local_path, sqlite_file, tracking_target, tracking_uri
from tasks.publish.tracking.version_tags import ModelVersion
from tasks.storage.home import Home

if TYPE_CHECKING:
    from tasks.publish.tracking.mlflow_registry import MlflowRegistry
    from tasks.publish.tracking.mlflow_store import Tracker

REVISION = "dc11669786a5"
"""Of MLflow 3.17's tables."""
_DELETED = "Deleted_Internal"
"""Stage by which MLflow marks a version that is gone."""
_WAIT_SECONDS = 30.0
"""For another process that writes."""
_ANY_EXPERIMENT = "Default"  # every store has it: nothing is made by looking
_OWN_URIS = ("runs:", "models:")
"""Places that only mlflow can follow."""


class SqliteRegistry:
    """The registry in an SQLite file of MLflow's."""

    def __init__(self, home: Home, uri: str, path: Path) -> None:
        """`uri` is what people know the store by; `path` is its file. Raises sqlite3.Error for one that is none."""
        self.home, self.uri, self._path = home, uri, path
        if self._rows("SELECT version_num FROM alembic_version") != [(REVISION,)]:
            raise sqlite3.NotSupportedError(f"{path} has tables of another version")

    def _rows(self, query: str, *values: str) -> list[tuple[Any, ...]]:
        address = f"file:{quote(str(self._path))}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=_WAIT_SECONDS)) as database:
            return database.execute(query, values).fetchall()

    def _read(self, columns: str, table: str, name: str | None = None) -> list[tuple[Any, ...]]:
        query = f"SELECT {columns} FROM {table} WHERE workspace = 'default'"
        try:
            return self._rows(query) if name is None else self._rows(f"{query} AND name = ?", name)
        except sqlite3.Error as error:
            raise StageError(f"MLflow's file {self._path} cannot be read: {error}; run again") from error

    def model_names(self) -> list[str]:
        """Return the names of all registered models, sorted."""
        return sorted(str(name) for (name,) in self._read("name", "registered_models"))

    def aliases(self, name: str) -> dict[str, str]:
        """Return a model's aliases and their versions."""
        rows = self._read("alias, version", "registered_model_aliases", name)
        return {str(alias): str(version) for alias, version in rows}

    def model_tags(self, name: str) -> dict[str, str]:
        """Return a model's own tags."""
        return dict(self._read("key, value", "registered_model_tags", name))

    def versions(self, name: str) -> list[ModelVersion]:
        """Return a model's versions."""
        tags: dict[str, dict[str, str]] = {}
        for version, key, value in self._read("version, key, value", "model_version_tags", name):
            tags.setdefault(str(version), {})[key] = value or ""
        columns = "version, source, run_id, creation_time, current_stage"
        return [
            ModelVersion(name, str(version), source or "", run_id or "", created or 0, tags.get(str(version), {}))
            for version, source, run_id, created, stage in self._read(columns, "model_versions", name)
            if stage != _DELETED
        ]

    def place_of(self, name: str, version: str) -> str:
        """Return the URI at which the registry says that a model version's files are."""
        rows = self._read("version, storage_location, source", "model_versions", name)
        place = next(str(location or source) for number, location, source in rows if str(number) == version)
        return self._through_mlflow.place_of(name, version) if place.startswith(_OWN_URIS) else place

    def own_folders(self) -> Iterator[Path]:
        """Yield the home's folder; of a file that no server stands before, also those of its experiments."""
        yield self.home.mlflow / "artifacts"
        if not self.uri.startswith("sqlite:///"):
            return
        yield self._path.parent / "artifacts"
        for (location,) in self._read("artifact_location", "experiments"):
            folder = local_path(str(location))
            if folder is not None:
                yield folder

    def download(self, uri: str, folder: Path) -> None:
        """Copy what lies at a URI of artifacts into a folder that exists."""
        self._through_mlflow.download(uri, folder)

    @cached_property
    def _through_mlflow(self) -> MlflowRegistry:
        from tasks.publish.tracking.mlflow_registry import MlflowRegistry

        return MlflowRegistry(self.home)


def open_registry(home: Home) -> SqliteRegistry | MlflowRegistry:
    """Connect to the store of registered models for reading, without making one.

    Raises RecipeError: the home has none; StageError: it cannot be reached.
    """
    uri, file = tracking_uri(home), home.mlflow / "mlflow.db"
    if (named := sqlite_file(uri)) is not None:
        file = named
        if not file.exists():
            raise RecipeError(
                f"no model is registered in {home.root}; train one: graphmill run RECIPE (or name another --home)"
            )
    readable = named is not None or tracking_target() == "home"  # a server over the home's own file
    if readable and os.environ.get("MLFLOW_REGISTRY_URI") in (None, uri):
        try:
            return SqliteRegistry(home, uri, file)
        except sqlite3.Error:
            pass  # mlflow says what it is, or brings the tables up to date
    return open_tracker(home)


def open_tracker(home: Home) -> Tracker:
    """Connect to the store of registered models for changes. Raises StageError."""
    from tasks.publish.tracking.mlflow_store import Tracker

    return Tracker(home, _ANY_EXPERIMENT)
