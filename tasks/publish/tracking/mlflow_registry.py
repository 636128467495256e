"""A connection to MLflow, and the registered models that are read through it.

A server that is away is asked again with growing pauses; after that a StageError says what to do. The store is SQLite
with local artifacts under the home, or what `MLFLOW_TRACKING_URI` says.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

from configs.errors import RecipeError, StageError
from tasks.processes import ending
from tasks.publish.tracking.store_uris import local_path, public_uri, sqlite_file, tracking_uri
from tasks.publish.tracking.version_tags import ModelVersion
from tasks.storage.artifacts import file_lock
from tasks.storage.file_names import beside
from tasks.storage.home import Home
from tasks.storage.home_files.database_templates import copy_template

P = ParamSpec("P")
T = TypeVar("T")

_PAUSES_SECONDS = (1.0, 2.0, 4.0, 8.0)
_PASSING_CODES = frozenset({"INTERNAL_ERROR", "TEMPORARILY_UNAVAILABLE", "REQUEST_LIMIT_EXCEEDED"})
_uri_lock = threading.Lock()


def prepare_store(home: Home) -> None:
    """Make the home's SQLite store whole before a server opens it."""
    import_mlflow()
    with file_lock(home.locks / "mlflow.lock"):
        make_database(home.mlflow / "mlflow.db")


def import_mlflow() -> ModuleType:
    """Import mlflow (1.5 s) without telemetry, progress bars and the chatter of its database set-up."""
    for name, value in {
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
        "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
        "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
        # Each call would wait up to four minutes before our own pauses begin.
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",
    }.items():
        os.environ.setdefault(name, value)
    import mlflow

    for logger in ("alembic", "mlflow"):
        logging.getLogger(logger).setLevel(logging.WARNING)
    # It logs an error's traceback and raises the error, of which we say what it is.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
    return mlflow


def make_database(path: Path) -> None:
    """Create MLflow's SQLite file whole or not at all: tables of which a killed process made half never open again."""
    if path.exists() and path.stat().st_size:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = beside(path, ".draft")
    for leftover in (draft, Path(f"{draft}-journal"), Path(f"{draft}-wal"), Path(f"{draft}-shm")):
        leftover.unlink(missing_ok=True)
    if not copy_template("mlflow", draft):
        from mlflow.tracking import MlflowClient

        uri = f"sqlite:///{draft}"
        MlflowClient(tracking_uri=uri, registry_uri=uri).search_experiments(max_results=1)
    with closing(sqlite3.connect(draft)) as database, database:  # else it is below whatever folder we are in
        place = (path.resolve().parent / "artifacts").as_uri()
        database.execute("UPDATE experiments SET artifact_location = ? WHERE name = 'Default'", (place,))
    draft.replace(path)


def named(name: str) -> str:
    """Return the filter by which a registry finds a model. Raises RecipeError where there can be none."""
    quote = '"' if "'" in name else "'"
    if quote in name:
        raise RecipeError(f"{name!r} has both kinds of quotes, and MLflow cannot look for such a model; rename it")
    return f"name = {quote}{name}{quote}"


class MlflowRegistry:
    """A connection to MLflow, by which registered models are read."""

    def __init__(
        self,
        home: Home,
        uri: str | None = None,
        pauses: Sequence[float] | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> None:
        """Connect to the store; `uri` defaults to `tracking_uri(home)`. Raises StageError if it cannot be reached.

        `pauses`: seconds between the attempts of a call. `on_wait` is called once, when a first attempt has failed.
        """
        self.home = home
        self.uri = uri or tracking_uri(home)
        self.lock = home.locks / "mlflow.lock"
        self._pauses = tuple(_PAUSES_SECONDS if pauses is None else pauses)
        self._on_wait = on_wait
        self._mlflow = import_mlflow()
        from mlflow.tracking import MlflowClient

        with file_lock(self.lock):  # two processes that create the tables at once get in each other's way
            if (file := sqlite_file(self.uri)) is not None:
                self.call(make_database, file)
            registry = os.environ.get("MLFLOW_REGISTRY_URI") or self.uri
            self.client: Any = self.call(MlflowClient, tracking_uri=self.uri, registry_uri=registry)

    def model_names(self) -> list[str]:
        """Return the names of all registered models, sorted."""
        return sorted(str(model.name) for model in self._pages(self.client.search_registered_models))

    def aliases(self, name: str) -> dict[str, str]:
        """Return a model's aliases and their versions."""
        aliases = self.call(self.client.get_registered_model, name).aliases
        return {str(alias): str(version) for alias, version in aliases.items()}

    def model_tags(self, name: str) -> dict[str, str]:
        """Return a model's own tags."""
        return dict(self.call(self.client.get_registered_model, name).tags)

    def versions(self, name: str) -> list[ModelVersion]:
        """Return a model's versions."""
        return [
            ModelVersion(
                str(one.name),
                str(one.version),
                str(one.source or ""),
                str(one.run_id or ""),
                int(one.creation_timestamp or 0),
                dict(one.tags),
            )
            for one in self._pages(self.client.search_model_versions, named(name))
        ]

    def _pages(self, search: Any, where: str | None = None) -> Iterator[Any]:
        token = None
        while True:
            page = self.call(search, where, max_results=100, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    def place_of(self, name: str, version: str) -> str:
        """Return the URI at which the registry says that a model version's files are."""
        uri = str(self.call(self.client.get_model_version_download_uri, name, version))
        if uri.startswith("runs:"):
            from mlflow.store.artifact.runs_artifact_repo import RunsArtifactRepository

            uri = str(self.call(RunsArtifactRepository.get_underlying_uri, uri, self.uri))
        return uri

    def own_folders(self) -> Iterator[Path]:
        """Yield the folders of this machine that the store keeps its artifacts in; the home's, first of all.

        A database's experiments say where theirs are. A server's do not count: whoever may talk to it makes them.
        """
        yield self.home.mlflow / "artifacts"
        if self.uri.startswith(("http:", "https:", "databricks")):
            return
        if (file := sqlite_file(self.uri)) is not None:
            yield file.parent / "artifacts"
        from mlflow.entities import ViewType

        for experiment in self.call(self.client.search_experiments, view_type=ViewType.ALL, max_results=1000):
            path = local_path(str(experiment.artifact_location))
            if path is not None:
                yield path

    def download(self, uri: str, folder: Path) -> None:
        """Copy what lies at a URI of artifacts into a folder that exists."""
        from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

        def fetch() -> None:
            with self.as_global():
                repository: Any = get_artifact_repository(uri, tracking_uri=self.uri)
                repository.download_artifacts("", dst_path=str(folder))

        self.call(fetch)

    @contextmanager
    def as_global(self) -> Iterator[None]:
        """The registry resolves `models:/ID` through MLflow's global URI, whatever its client was given (3.17)."""
        with _uri_lock:
            before = os.environ.get("MLFLOW_TRACKING_URI")
            self._mlflow.set_tracking_uri(self.uri)
            try:
                yield
            finally:
                self._mlflow.set_tracking_uri(before)
                if before is None:
                    os.environ.pop("MLFLOW_TRACKING_URI", None)
                else:
                    os.environ["MLFLOW_TRACKING_URI"] = before

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call MLflow; ask again where the store is away or busy. Raises StageError with a way out."""
        from mlflow.exceptions import MlflowException

        for pause in (*self._pauses, None):
            try:
                return function(*args, **kwargs)
            except MlflowException as error:
                place = public_uri(self.uri)
                why = " ".join(str(error).split()).replace(self.uri, place)  # often only later lines say what failed
                if error.error_code in _PASSING_CODES and pause is not None and not ending.is_ending():
                    say, self._on_wait = self._on_wait, None
                    if say is not None:
                        say(f"waiting for MLflow at {place}, retrying for some minutes: {why[:200]}")
                    time.sleep(pause)
                    continue
                raise StageError(
                    f"MLflow at {place} did not do it: {why[:400]}. The training is kept; run again when it answers "
                    "(only publishing is repeated), or unset MLFLOW_TRACKING_URI to track under the home"
                ) from error
        raise AssertionError("the last attempt returns or raises")
