"""As-of texts: one text a moment, its end in the data's unit, and their order."""

from __future__ import annotations

import calendar
import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from configs.errors import RecipeError
from configs.load import build_recipe
from configs.moments import TimeUnit, is_earlier, last_time, normalise_as_of
from tests.flows.conftest import TINY


@pytest.mark.parametrize(
    ("given_as", "kept"),
    [
        (2023, "2023"),
        (" 2023-06 ", "2023-06"),
        (datetime.date(2023, 6, 30), "2023-06-30"),
        ("2023-06-30T14:00+02:00", "2023-06-30T12:00:00+00:00"),
        ("2023-06-30 12:00:00.9Z", "2023-06-30T12:00:00+00:00"),
        (datetime.datetime(2023, 6, 30, 12), "2023-06-30T12:00:00+00:00"),
        (-5, "-5"),
    ],
)
def test_one_text_for_each_moment(given_as: Any, kept: str) -> None:
    assert normalise_as_of(given_as) == kept
    assert normalise_as_of(kept) == kept


@pytest.mark.parametrize(
    "text", ["yesterday", "2023-13", "2023-02-30", "2023-6", 2023.5, True, "", "2023-W26-1", "12:00"]
)
def test_no_moment(text: Any) -> None:
    with pytest.raises(ValueError, match=r"is no moment.*2023-06-30"):
        normalise_as_of(text)


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("snapshot.as_of=soon", "snapshot.as_of: 'soon' is no moment"),
        ("snapshot.as_of=2023-02-30", "is not valid YAML: day is out of range"),  # YAML itself wants a date there
        ("snapshot.valid=0.3", "shares of 1; they add up to 1.2"),
    ],
)
def test_mistakes_name_the_option(override: str, words: str) -> None:
    with pytest.raises(RecipeError, match=words):
        build_recipe(dict(TINY), [override])


def test_recipe_keeps_the_text() -> None:
    for override, kept in (("2023", "2023"), ("2023-06-30", "2023-06-30"), ("null", None)):
        assert build_recipe(dict(TINY), [f"snapshot.as_of={override}"]).snapshot.as_of == kept


def seconds(*parts: int) -> int:
    return calendar.timegm((*parts, *(0,) * (6 - len(parts))))


@pytest.mark.parametrize(
    ("as_of", "expected"),
    [
        ("2023", seconds(2024, 1, 1) - 1),
        ("2024-02", seconds(2024, 3, 1) - 1),
        ("2023-06-30", seconds(2023, 7, 1) - 1),
        ("2023-06-30T12:00:00+00:00", seconds(2023, 6, 30, 12)),
        ("1969-12-31T23:59:59+00:00", -1),
        ("9999", seconds(9999, 12, 31, 23, 59, 59)),
        ("1700000000", 1700000000),
    ],
)
def test_a_bare_year_month_or_day_means_its_end(as_of: str, expected: int) -> None:
    assert last_time(as_of, "seconds") == expected
    if expected != 1700000000:
        assert last_time(as_of, "milliseconds") == expected * 1000 + 999
        assert last_time(as_of, "years") == int(as_of[:4])


def test_numbers_are_taken_as_they_are() -> None:
    assert [last_time(text, "number") for text in ("2023", "40000000", "-5")] == [2023, 40000000, -5]
    with pytest.raises(RecipeError, match=r"snapshot\.as_of=2023-06 is a date.*snapshot\.unit=years"):
        last_time("2023-06", "number")


def test_order() -> None:
    ascending = ["1999", "2021-03", "2023-05-31", "2023-06-30T12:00:00+00:00", "2023-06", "2023", "2024-01-01"]
    for i, first in enumerate(ascending):
        assert [is_earlier(first, second) for second in ascending] == [j > i for j in range(len(ascending))]
    assert is_earlier("9000", "12000")
    assert not is_earlier("2023", "2023-12-31")
    assert not is_earlier("40000000", "2023-01-01")  # they do not compare
    assert not is_earlier("2023-01-01", "40000000")


@pytest.mark.parametrize(("unit", "scale"), [("seconds", 1), ("milliseconds", 1000)])
def test_years_and_numbers_compare_on_one_scale(unit: TimeUnit, scale: int) -> None:
    """A bare year is no number of seconds."""
    ascending = ["0", "1999", str(1_600_000_000 * scale), "2020-12", "2023", str(1_710_000_000 * scale), "2024-06-01"]
    for i, first in enumerate(ascending):
        assert [is_earlier(first, second, unit) for second in ascending] == [j > i for j in range(len(ascending))]


@settings(deadline=None)
@given(st.datetimes(min_value=datetime.datetime(1900, 1, 1), max_value=datetime.datetime(2200, 1, 1)))
def test_finer_moments_are_never_later(moment: datetime.datetime) -> None:
    texts = [normalise_as_of(moment), f"{moment:%Y-%m-%d}", f"{moment:%Y-%m}", f"{moment:%Y}"]
    ends = [last_time(text, "seconds") for text in texts]
    assert ends == sorted(ends)
    for (first, a), (second, b) in zip(
        zip(texts, ends, strict=True), list(zip(texts, ends, strict=True))[1:], strict=False
    ):
        assert is_earlier(first, second) == (a < b)
