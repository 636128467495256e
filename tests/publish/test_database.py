"""MLflow's SQLite file is whole or absent, whenever its first maker is killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from tasks.publish.tracking.mlflow_registry import prepare_store
from tasks.publish.tracking.mlflow_store import Tracker
from tasks.storage.home import Home
from tasks.storage.home_files.database_templates import copy_template, keep_as_template, template_path
from tests.flows.conftest import ROOT, environment

_FIRST = """
import sys
from tasks.storage.home import Home
from tasks.publish.tracking.mlflow_store import Tracker
Tracker(Home.open(sys.argv[1]), "e")
"""


def test_a_killed_first_start_leaves_nothing_that_cannot_be_opened(home: Home) -> None:
    making = environment() | {"GRAPHMILL_TEMPLATES": str(home.root / "none")}
    first = subprocess.Popen([sys.executable, "-c", _FIRST, str(home.root)], cwd=ROOT, env=making)
    deadline = time.monotonic() + 120
    while first.poll() is None and time.monotonic() < deadline and _tables(home) < 3:
        time.sleep(0.005)
    first.kill()
    first.wait()
    assert 3 <= _tables(home) < 30, "killed in the middle of the tables"
    assert not (home.mlflow / "mlflow.db").exists()
    tracker = Tracker(home, "e")
    assert not tracker.open_run("key", "recipe")
    tracker.close("FINISHED")
    assert [path.name for path in home.mlflow.glob("*db*")] == ["mlflow.db"]
    assert not list(home.mlflow.glob(".*"))


def _tables(home: Home) -> int:
    draft = home.mlflow / ".mlflow.db.draft"
    if not draft.exists():
        return 0
    try:
        with sqlite3.connect(f"file:{draft}?mode=ro", uri=True) as connection:
            (count,) = connection.execute("select count(*) from sqlite_master where type = 'table'").fetchone()
    except sqlite3.Error:
        return 0
    return int(count)


def test_a_new_home_begins_with_the_template(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_TEMPLATES", str(home.root / "templates"))
    maker, new = (Home.open(home.root / name) for name in ("maker", "new"))
    for one in (maker, new):
        prepare_store(one)
        keep_as_template("mlflow", one.mlflow / "mlflow.db")
        assert template_path("mlflow").is_file()
        with closing(sqlite3.connect(one.mlflow / "mlflow.db")) as database:
            found = dict(database.execute("SELECT name, artifact_location FROM experiments").fetchall())
        assert found == {"Default": (one.mlflow / "artifacts").as_uri()}, "nothing of the home where it was made"
    assert not copy_template("mlflow", new.mlflow / "mlflow.db"), "what is there stays"


@pytest.mark.parametrize("kept", [0, 100_000, None])
def test_a_damaged_template_is_as_none(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: int | None
) -> None:
    """Cut short as by a loss of power, or full of something else: a new home would begin with a damaged database."""
    sound = tmp_path / "sound.db"
    with closing(sqlite3.connect(sound)) as database, database:
        database.execute("CREATE TABLE alembic_version (version_num TEXT)")
        database.execute("INSERT INTO alembic_version VALUES ('1')")
        database.execute("CREATE TABLE large (content BLOB)")
        database.execute("INSERT INTO large VALUES (zeroblob(200000))")
    monkeypatch.setenv("GRAPHMILL_TEMPLATES", str(tmp_path / "templates"))
    template = keep_as_template("mlflow", sound)
    whole = template.read_bytes()
    template.write_bytes(b"no database" * 20_000 if kept is None else whole[:kept])
    place = home.root / "mlflow.db"
    assert not copy_template("mlflow", place)
    assert not any("mlflow.db" in path.name for path in home.root.iterdir())
    template.write_bytes(whole)
    assert copy_template("mlflow", place)
    assert place.read_bytes() == whole


def test_set_up_goes_on_where_templates_cannot_be_kept(tmp_path: Path) -> None:
    """They only save time: a folder that takes none is said in a line, and before anything is made."""
    (tmp_path / "file").touch()
    words = environment() | {"GRAPHMILL_TEMPLATES": str(tmp_path / "file" / "below")}
    command = [sys.executable, "-m", "flows.services.templates"]
    done = subprocess.run(command, cwd=ROOT, env=words, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert "below takes no templates of databases" in done.stdout


def test_a_template_that_was_cut_short_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHMILL_TEMPLATES", str(tmp_path / "kept"))
    (tmp_path / "no.db").write_bytes(b"no database" * 1000)
    with pytest.raises(sqlite3.Error):
        keep_as_template("mlflow", tmp_path / "no.db")
    assert list((tmp_path / "kept").iterdir()) == []
