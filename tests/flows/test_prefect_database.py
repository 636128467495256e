"""What becomes of a Prefect database that does not open."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from configs.errors import StageError
from flows.server import EmbeddedServer, prepare_database
from tasks.home import Home

WRECK = b"this is no database" * 1000


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "prefect"))
    (tmp_path / "prefect").mkdir()
    (tmp_path / "prefect" / "prefect.db").write_bytes(WRECK)
    return Home.open(str(tmp_path))


def test_what_a_killed_first_start_left_is_set_aside(home: Home) -> None:
    prepare_database(home)
    assert EmbeddedServer(home).has_database
    assert (home.prefect / "prefect.db.broken").read_bytes() == WRECK
    with sqlite3.connect(home.prefect / "prefect.db") as connection:
        assert connection.execute("select count(*) from flow_run").fetchone() == (0,)
    connection.close()


def test_the_database_of_an_older_version_stays(home: Home) -> None:
    (home.prefect / ".database-3.0.0").touch()
    with pytest.raises(StageError, match="did not start; its log is"):
        prepare_database(home)
    assert (home.prefect / "prefect.db").read_bytes() == WRECK
    assert not EmbeddedServer(home).has_database
