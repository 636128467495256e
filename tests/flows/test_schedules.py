"""How often a deployment runs, as people write it."""

from __future__ import annotations

import datetime

import pytest

from configs.errors import RecipeError
from flows.deploy.deployments import parse_every


def test_forms() -> None:
    found = {text: parse_every(text) for text in ("30m", "30 min", " 6h ", "1d", "2w", "520w")}
    minutes = datetime.timedelta(minutes=30)
    assert [*found.values()] == [minutes, minutes, *(datetime.timedelta(hours=n) for n in (6, 24, 336, 87360))]


@pytest.mark.parametrize(
    "text", ["", "often", "0m", "-1h", "1.5h", "99999999999999w", "9" * 5000 + "d", "4000d", "6 h h"]
)
def test_what_is_no_interval(text: str) -> None:
    with pytest.raises(RecipeError, match=r"--every '.{0,40}'.* 30m, 6h, 1d or 2w"):
        parse_every(text)
