"""When a recipe is well again: who had failed, and who has mended it."""

from __future__ import annotations

from flows.notifications.events import RECOVERED, happenings
from flows.records.run_record import KILLED, RunRecord, Status, earlier_failure, recorded
from tasks.storage.home import Home

NIGHTLY, HOURLY = "d-nightly", "d-hourly"


def leave(
    home: Home, moment: int, status: Status, deployment: str = NIGHTLY, partition: str = "", run_id: str = ""
) -> RunRecord:
    """Write the record of a run that began at a minute."""
    record = RunRecord(
        id=run_id or f"run-{moment}",
        recipe="tiny",
        started_at=f"2026-01-01T00:{moment:02}:00+00:00",
        deployment=deployment,
        tags=["graphmill", *([f"partition:{partition}"] if partition else [])],
        status=status,
        error=f"error {moment}" if status == "failed" else "",
    )
    record.failed_before = earlier_failure(home, record.id)
    record.write(home)
    return record


def told(home: Home, record: RunRecord) -> list[str]:
    return [payload["text"] for event, payload in happenings(home, record) if event == RECOVERED]


def test_the_first_good_night_after_a_failed_one_is_told_once(home: Home) -> None:
    leave(home, 1, "failed")
    leave(home, 2, "cancelled")
    assert told(home, leave(home, 3, "completed")) == ["tiny is well again (it had failed: error 1)"]
    assert told(home, leave(home, 4, "completed")) == []


def test_other_deployments_and_partitions_do_not_count(home: Home) -> None:
    leave(home, 1, "failed", partition="2021")
    leave(home, 2, "failed", deployment=HOURLY)
    assert told(home, leave(home, 3, "completed", partition="2022")) == []
    assert told(home, leave(home, 4, "completed")) == []
    assert told(home, leave(home, 5, "completed", deployment="")) == []
    assert told(home, leave(home, 6, "completed", partition="2021")) != []
    assert told(home, leave(home, 7, "completed", deployment=HOURLY)) != []


def test_a_run_that_was_killed_and_started_again_under_its_own_id_is_told(home: Home) -> None:
    leave(home, 1, "failed", run_id="same")
    leave(home, 2, "cancelled", run_id="same")
    leave(home, 3, "completed")  # another night in between
    assert told(home, leave(home, 4, "completed", run_id="same")) == ["tiny is well again (it had failed: error 1)"]
    leave(home, 5, "running", run_id="killed")  # nobody holds its lock, and nobody has buried it yet
    assert KILLED in told(home, leave(home, 6, "completed", run_id="killed"))[0]


def test_a_run_that_lives_has_not_failed(home: Home) -> None:
    record = leave(home, 1, "running")
    with recorded(home, record):
        assert earlier_failure(home, record.id) == ""
    assert earlier_failure(home, "none") == ""
