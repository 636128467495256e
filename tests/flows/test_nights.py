"""What deployments and channels are asked: how often they run, addresses, who has mended a recipe."""

from __future__ import annotations

import datetime

import pytest
from prefect.client.schemas.schedules import IntervalSchedule

from configs.errors import RecipeError
from flows.deploy.deployments import _schedule_text, parse_every
from flows.notifications.channels import Kind, check_url
from flows.notifications.events import RECOVERED, happenings
from flows.records.run_record import KILLED, RunRecord, Status, earlier_failure, recorded
from tasks.storage.home import Home


def test_forms() -> None:
    found = {text: parse_every(text) for text in ("30m", "30 min", " 6h ", "1d", "2w", "520w")}
    minutes = datetime.timedelta(minutes=30)
    assert [*found.values()] == [minutes, minutes, *(datetime.timedelta(hours=n) for n in (6, 24, 336, 87360))]


def test_deployments_show_them_as_they_were_given() -> None:
    shown = [
        _schedule_text(IntervalSchedule(interval=parse_every(one))) for one in ("30 min", "90m", "6h", "1d", "14d")
    ]
    assert shown == ["every 30m", "every 90m", "every 6h", "every 1d", "every 2w"]
    assert _schedule_text(IntervalSchedule(interval=datetime.timedelta(seconds=90))) == "every 0:01:30"


@pytest.mark.parametrize(
    "text", ["", "often", "0m", "-1h", "1.5h", "99999999999999w", "9" * 5000 + "d", "4000d", "6 h h"]
)
def test_what_is_no_interval(text: str) -> None:
    with pytest.raises(RecipeError, match=r"--every '.{0,40}'.* 30m, 6h, 1d or 2w"):
        parse_every(text)


@pytest.mark.parametrize("kind", ["webhook", "slack", "email"])
@pytest.mark.parametrize("url", ["http://[x", "mailtos://[x", "", "http://", "ftp://host/x"])
def test_what_is_no_address_is_refused(kind: Kind, url: str) -> None:
    with pytest.raises(RecipeError, match=f"--{kind} .* is not such an address; write"):
        check_url(kind, url)


NIGHTLY, HOURLY = "d-nightly", "d-hourly"


def leave(
    home: Home, moment: int, status: Status, deployment: str = NIGHTLY, partition: str = "", run_id: str = ""
) -> RunRecord:
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
