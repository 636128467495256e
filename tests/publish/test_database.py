"""MLflow's SQLite file is whole or absent, whenever its first maker is killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time

from tasks.publish.tracking.mlflow_store import Tracker
from tasks.storage.home import Home
from tests.flows.conftest import ROOT, environment

_FIRST = """
import sys
from tasks.storage.home import Home
from tasks.publish.tracking.mlflow_store import Tracker
Tracker(Home.open(sys.argv[1]), "e")
"""


def test_a_killed_first_start_leaves_nothing_that_cannot_be_opened(home: Home) -> None:
    first = subprocess.Popen([sys.executable, "-c", _FIRST, str(home.root)], cwd=ROOT, env=environment())
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
