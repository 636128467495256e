"""Make the databases that new homes begin with: `python -m flows.services.templates`, called by `make setup`."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from flows.services.environment import prepare_environment
from flows.web.temporary_server import prepare_database
from tasks.storage.home import Home
from tasks.storage.home_files.database_templates import Library, is_sound, keep_as_template, template_path


def make_templates() -> None:
    """Make those that are missing or damaged. Raises StageError where a library cannot make its tables."""
    libraries: tuple[Library, ...] = ("prefect", "mlflow")
    if all(is_sound(template_path(name)) for name in libraries):
        return
    from tasks.publish.tracking.mlflow_registry import prepare_store

    with tempfile.TemporaryDirectory(prefix="graphmill-templates-") as folder:
        home = Home.open(folder)
        prepare_environment(home)
        prepare_database(home)
        with closing(sqlite3.connect(home.prefect / "prefect.db")) as database, database:
            database.execute("DELETE FROM configuration")  # keys and the like: each home makes its own
        prepare_store(home)
        for name, made in zip(libraries, (home.prefect / "prefect.db", home.mlflow / "mlflow.db"), strict=True):
            print(keep_as_template(name, made))


def main() -> None:
    """Make them, whatever servers the user has. Where they cannot be kept, homes begin more slowly, and that is all."""
    for name in [name for name in os.environ if name.startswith(("PREFECT_", "MLFLOW_"))]:
        del os.environ[name]
    os.chdir(Path(__file__).resolve().parents[2])
    folder = template_path("prefect").parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # else minutes of work would come before the mistake
        make_templates()
    except (OSError, sqlite3.Error) as error:
        print(f"{folder} takes no templates of databases ({error}): the first run in a new home takes longer")


if __name__ == "__main__":
    main()
