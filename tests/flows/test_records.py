"""Who lives, who has ended, and who was killed: what other processes make of a run's record."""

from __future__ import annotations

from contextlib import suppress

import pytest

from configs.errors import DataError, StageError
from flows.hooks import bury_dead_runs
from flows.runs import KILLED, RunRecord, all_runs, bury, now_text, read_record, recorded, settled
from tasks import ending
from tasks.home import Home


def new_record() -> RunRecord:
    return RunRecord(id="00000000-0000-0000-0000-000000000001", recipe="tiny", started_at=now_text())


def test_a_run_that_has_ended_since_its_record_was_read_stays_as_it_ended(home: Home) -> None:
    record = new_record()
    with recorded(home, record):
        (read,) = all_runs(home)
        assert read.status == "running"
    assert bury(home, read) is None
    assert settled(home, read).status == "completed"
    again = new_record()
    with suppress(RuntimeError), recorded(home, again):
        (read,) = all_runs(home)
        raise RuntimeError("bad")
    assert bury(home, read) is None
    assert settled(home, read).error == "RuntimeError: bad"
    assert read_record(home, again.id) == settled(home, read)


def test_a_run_that_has_begun_anew_since_its_record_was_read_is_not_buried(home: Home) -> None:
    killed = new_record()
    killed.write(home)
    again = new_record()
    with recorded(home, again):
        assert bury(home, killed) is None
        assert settled(home, killed).status == "running"
    assert read_record(home, again.id) == again
    assert again.status == "completed"


def test_a_killed_run_is_buried_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    record = new_record()
    record.host = "here"
    record.write(home)
    assert settled(home, record).error == KILLED
    assert read_record(home, record.id) == record  # looking changes nothing
    (dead,) = bury_dead_runs(home)
    assert dead.error == KILLED
    assert read_record(home, record.id) == dead
    assert bury_dead_runs(home) == []


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
    assert kept is not None
    assert (kept.status, kept.error) == expected
    assert kept.finished_at
