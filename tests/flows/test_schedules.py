"""How often a deployment runs, as people write it."""

from __future__ import annotations

import datetime

import pytest
from prefect.client.schemas.schedules import IntervalSchedule

from configs.errors import RecipeError
from flows.deploy.deployments import _schedule_text, parse_every


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
