"""Who lives, who has ended and who was killed: what others make of a run's record; and what `clean` removes."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from configs.errors import DataError, StageError
from configs.schema import STAGES
from flows.commands.installation.clean import clean_home, needed_artifacts, show_removed
from flows.commands.recipes.outcome import outcome_json, show_outcome
from flows.pipeline.run_endings import mark_killed_runs, reported_metrics, use_seen
from flows.records.run_record import (
    KILLED,
    RunRecord,
    all_runs,
    is_killed,
    lock_path,
    mark_killed,
    now_text,
    read_record,
    record_path,
    recorded,
    settled,
)
from flows.records.tables import metric_table
from tasks.processes import ending
from tasks.storage.home import Home
from tasks.storage.outcomes import rows_text
from tests.support import stage_entry


def new_record() -> RunRecord:
    return RunRecord(id="00000000-0000-0000-0000-000000000001", recipe="tiny", started_at=now_text())


def test_a_run_that_has_ended_since_its_record_was_read_stays_as_it_ended(home: Home) -> None:
    record = new_record()
    with recorded(home, record):
        (read,) = all_runs(home)
        assert read.status == "running"
    assert mark_killed(home, read) is None
    assert settled(home, read).status == "completed"
    again = new_record()
    with suppress(RuntimeError), recorded(home, again):
        (read,) = all_runs(home)
        raise RuntimeError("bad")
    assert mark_killed(home, read) is None
    assert settled(home, read).error == "RuntimeError: bad"
    assert read_record(home, again.id) == settled(home, read)


def test_a_run_that_has_begun_anew_since_its_record_was_read_is_not_buried(home: Home) -> None:
    killed = new_record()
    killed.write(home)
    again = new_record()
    with recorded(home, again):
        assert mark_killed(home, killed) is None
        assert settled(home, killed).status == "running"
    assert read_record(home, again.id) == again
    assert again.status == "completed"


def test_only_a_run_without_a_process_counts_as_killed(home: Home) -> None:
    elsewhere = RunRecord(id="2", recipe="tiny", started_at=now_text(), host="elsewhere")
    elsewhere.write(home)
    record = new_record()
    with recorded(home, record):
        assert [is_killed(home, one) for one in all_runs(home)] == [False, False]
    assert not is_killed(home, record.model_copy(update={"status": "running"})), "it has ended since it was read"
    record.status = "running"
    record.write(home)
    assert is_killed(home, record)


def test_controls_stand_below_the_split_that_they_were_measured_on(capsys: pytest.CaptureFixture[str]) -> None:
    record = new_record()
    record.metrics = {"valid": {"rmse": 0.5, "r2": 0.75}, "test": {"rmse": 0.625}}
    record.controls = {
        "mean": {"valid": {"rmse": 1.5}, "test": {"rmse": 1.25}},
        "features": {"valid": {"rmse": 0.875, "r2": 0.25}},
    }
    rows = ["valid", "valid · mean", "valid · features only", "test", "test · mean"]
    shown = metric_table("", record.metrics, record.controls)
    assert [row for row, *_ in shown.rows] == rows
    assert "|  | rmse | r2 |\n" in shown.markdown()
    assert "\n| valid · features only | 0.8750 | 0.2500 |\n" in shown.markdown()
    assert outcome_json(record)["controls"] == record.controls
    show_outcome(Console(), Home(Path()), record)
    shown = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line.split("  ")[0] for line in shown if "0." in line or "1." in line] == rows


def test_f1_by_which_papers_compare_is_printed(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    shares = [{"share": 0.1, "micro": 0.25, "macro": 0.125}, {"share": 0.05, "micro": 0.5, "macro": 0.375}]
    record = new_record()
    record.reported = reported_metrics({"vectors": {"label_shares": {"shares": shares}}}, {})
    show_outcome(Console(), home, record)
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["labels", "known", "10", "%", "5", "%"] in shown
    assert ["F1,", "micro", "0.2500", "0.5000"] in shown
    assert ["F1,", "macro", "0.1250", "0.3750"] in shown


def test_a_record_s_id_is_no_path(home: Home) -> None:
    before = set(home.root.parent.rglob("*"))
    record = new_record().model_copy(update={"id": "../../../escape"})
    with recorded(home, record):
        assert all_runs(home) == [record]
    assert all(path.is_relative_to(home.root) for path in set(home.root.parent.rglob("*")) - before)


def test_cleaning_removes_nothing_outside_whatever_records_say(home: Home) -> None:
    victims = [home.root.parent / "escape.json", home.root.parent / "run-escape.lock"]
    for number, name in enumerate(("escape", "../../escape", "../locks/../../escape")):
        record = RunRecord(id=f"../{name}", recipe="tiny", started_at="2001-01-01T00:00:00+00:00", status="failed")
        stages = {"train": stage_entry("train", key=f"../../{name}")}
        text = record.model_copy(update={"stages": stages}).model_dump_json()
        home.runs.mkdir(exist_ok=True)
        (home.runs / f"{number}.json").write_text(text)
    for path in [*victims, *home.runs.iterdir()]:
        path.touch()
        os.utime(path, (0, 0))
    clean_home(home, 1.0, dry_run=False)
    assert all(path.exists() for path in victims)


def test_a_killed_run_is_buried_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    record = new_record()
    record.host = "here"
    record.write(home)
    assert settled(home, record).error == KILLED
    assert read_record(home, record.id) == record  # looking changes nothing
    (dead,) = mark_killed_runs(home)
    assert dead.error == KILLED
    assert read_record(home, record.id) == dead
    assert mark_killed_runs(home) == []


def test_marks_of_uses_stay_as_long_as_these_live_or_are_another_machines(home: Home) -> None:
    home.locks.mkdir(exist_ok=True)
    (home.locks / "use-ended.lock").touch()
    (home.locks / "use-elsewhere.lock").write_text("another-machine")
    (home.locks / "use-killed.lock").write_text(socket.gethostname())
    with use_seen(home, "alive"):
        mark_killed_runs(home)
        assert {path.name for path in home.locks.glob("use-*")} == {"use-elsewhere.lock", "use-alive.lock"}
    assert [path.name for path in home.locks.glob("use-*")] == ["use-elsewhere.lock"]


@pytest.mark.parametrize(
    ("error", "reason", "expected"),
    [
        (None, None, ("completed", "")),
        (DataError("is wrong"), None, ("failed", "DataError: is wrong")),
        (KeyboardInterrupt(), None, ("cancelled", "KeyboardInterrupt")),
        (ending.TerminatedError(), StageError("no server"), ("failed", "StageError: no server")),
    ],
)
def test_a_record_says_how_a_run_ended(
    error: BaseException | None,
    reason: Exception | None,
    expected: tuple[str, str],
    home: Home,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending, "reason", lambda: reason)
    record = new_record()
    with suppress(BaseException), recorded(home, record):
        if error is not None:
            raise error
    kept = read_record(home, record.id)
    assert (kept.status, kept.error) == expected
    assert kept.finished_at


@pytest.mark.parametrize(
    "changes",
    [{"started_at": "x"}, {"started_at": "2026-01-01T00:00:00"}, {"finished_at": "y"}, {"stages": {"train": {}}}],
)
def test_a_spoilt_record_is_passed_over(home: Home, changes: dict[str, Any]) -> None:
    whole = new_record()
    whole.write(home)
    (home.runs / "spoilt.json").write_text(json.dumps(json.loads(whole.model_dump_json()) | changes | {"id": "spoilt"}))
    assert [record.id for record in all_runs(home)] == [whole.id]


@pytest.mark.parametrize("snapshot", [None, True, "2024", [1], {"as_of": ["2024"]}, {"as_of": {}}, {"as_of": "2024"}])
def test_cleaning_reads_any_recipe_that_a_record_may_hold(home: Home, snapshot: Any) -> None:
    record = new_record().model_copy(update={"config": {"snapshot": snapshot}, "status": "completed"})
    record.stages["train"] = stage_entry("train", key="0" * 24)
    (home.artifacts / "train" / ("0" * 24)).mkdir(parents=True)
    record.write(home)
    clean_home(home, 1.0, dry_run=False)
    assert record.as_of == ("2024" if snapshot == {"as_of": "2024"} else None)


def test_a_stage_of_no_rows_has_an_empty_cell() -> None:
    assert (rows_text("publish", 0, at_once=False), rows_text("evaluate", 5, at_once=False)) == ("", "5 scored")


DAY = 86400.0
LIMIT = 30 * DAY


def put(path: Path, days: float = 0.0) -> Path:
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
