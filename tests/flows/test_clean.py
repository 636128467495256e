"""What `graphmill clean` leaves: all that somebody may still ask for."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from configs.schema import STAGES
from flows.commands.installation.clean import clean_home, needed_artifacts, show_removed
from flows.records.run_record import RunRecord, lock_path, record_path, recorded
from tasks.storage.home import Home
from tests.support import stage_entry

DAY = 86400.0
LIMIT = 30 * DAY


def put(path: Path, days: float = 0.0) -> Path:
    """Write a file (and its folder) that is so many days old."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * 100)
    for place in (path, path.parent):
        os.utime(place, (time.time() - days * DAY,) * 2)
    return path


def leave(home: Home, run_id: str, days: float, **fields: object) -> Path:
    """Write the record and the lock of a run of so many days ago, of all stages, whose key is `run_id`."""
    started = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - days * DAY))
    stages = {name: stage_entry(name, key=run_id, digest=f"{name} {run_id}") for name in STAGES}
    values = {"recipe": "tiny", "status": "completed", "stages": stages, **fields}
    RunRecord(id=run_id, started_at=started, **values).write(home)
    os.utime(record_path(home, run_id), (time.time() - days * DAY,) * 2)
    put(lock_path(home, run_id), days)
    return record_path(home, run_id)


def test_work_that_is_younger_than_the_limit_stays(home: Home) -> None:
    """Its run waits to be started again, or was stopped for an upgrade."""
    old = put(home.work / "train-old" / "half.bin", 31)
    young = put(home.work / "train-young" / "deep" / "half.bin", 29)
    os.utime(young.parent.parent, (1, 1))
    empty = home.work / "train-begun"
    empty.mkdir()
    for dry_run in (True, False):
        assert [item.path for item in clean_home(home, LIMIT, dry_run=dry_run)] == [old.parent]
    assert young.exists()
    assert empty.exists()
    assert not old.exists()


def test_records_of_old_runs_go_with_their_locks(home: Home) -> None:
    old = [leave(home, f"old-{day}", day) for day in (40, 50)]
    latest = leave(home, "latest", 35)
    failed = leave(home, "failed", 34, status="failed")
    orphan = put(home.locks / "run-nobody.lock", 40)
    young = put(home.locks / "run-begins.lock", 1)
    dry = clean_home(home, LIMIT, dry_run=True)
    assert {item.path for item in dry} == {*old, orphan}
    show_removed(dry, dry_run=True)
    wet = clean_home(home, LIMIT, dry_run=False)
    assert {(item.path, item.num_bytes) for item in wet} == {(item.path, item.num_bytes) for item in dry}
    assert sorted(home.runs.iterdir()) == sorted([latest, failed])
    assert {path.name for path in home.locks.iterdir()} == {"run-latest.lock", "run-failed.lock", young.name}
    assert clean_home(home, LIMIT, dry_run=False) == []


def test_records_that_something_asks_for_stay(home: Home) -> None:
    leave(home, "running", 60, status="running")  # of another machine, whose locks are not seen here
    begun_with = leave(home, "begun-with", 70)
    put(home.artifacts / "train" / "begun-with" / "model.bin", 1)
    backfill = [leave(home, f"partition-{day}", day, tags=["backfill:b"]) for day in (40, 20)]
    goes = leave(home, "goes", 40, tags=["backfill:ended"])
    with recorded(home, RunRecord(id="alive", recipe="tiny", started_at="2020-01-01T00:00:00+00:00")):
        os.utime(record_path(home, "alive"), (1, 1))
        assert [item.path for item in clean_home(home, LIMIT, dry_run=False)] == [goes]
    assert begun_with.exists()
    assert all(path.exists() for path in backfill)


def test_the_record_goes_with_the_artifact_and_what_is_needed_stays_needed(home: Home) -> None:
    for day in (40, 50):
        leave(home, f"night-{day}", day)
        put(home.artifacts / "train" / f"night-{day}" / "model.bin", day)
    before = needed_artifacts(home, time.time() - LIMIT)
    removed = {item.path.name for item in clean_home(home, LIMIT, dry_run=False)}
    assert removed == {"night-50", "night-50.json"}
    assert needed_artifacts(home, time.time() - LIMIT) == before


def test_notes_of_who_forced_a_stage_go_with_its_work(home: Home) -> None:
    notes = [put(home.locks / f"train-{name}.forced", 40) for name in ("done", "old", "young")]
    put(home.work / "train-old" / "half.bin", 40)
    put(home.work / "train-young" / "half.bin", 1)
    clean_home(home, LIMIT, dry_run=False)
    assert [note.exists() for note in notes] == [False, False, True]


def test_downloaded_models_go_when_nobody_uses_them(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    used, unused = (put(home.downloads / "models" / name / "model.bin", 90) for name in ("m-used", "m-unused"))
    assert clean_home(home, LIMIT, dry_run=False) == [], "fetched now, though the files are older"
    later = time.time() + 40 * DAY
    os.utime(used, (later - DAY, 1))
    monkeypatch.setattr(time, "time", lambda: later)
    assert [item.path for item in clean_home(home, LIMIT, dry_run=False)] == [unused.parent]
    assert used.exists()
    assert not unused.parent.exists()


def test_a_link_to_nowhere_among_the_artifacts_is_let_alone(home: Home) -> None:
    link = home.artifacts / "train" / "key"
    link.parent.mkdir(parents=True)
    link.symlink_to(home.root / "gone")
    clean_home(home, time.time() + 1, dry_run=False)
    assert link.is_symlink()
