"""Moments that a snapshot is taken at: `2023`, `2023-06`, `2023-06-30`, a time stamp, or a whole number.

A bare year, month or day means its end. How a moment compares with the data depends on the unit of the data's times.
"""

from __future__ import annotations

import calendar
import datetime
import re
from typing import Literal

from configs.errors import RecipeError

TimeUnit = Literal["years", "seconds", "milliseconds", "number"]
"""What a whole number in a time column counts; `number`: only its owner knows."""

_NUMBER = re.compile(r"[+-]?\d{1,18}")
_YEAR = re.compile(r"\d{4}")
_MONTH = re.compile(r"(\d{4})-(\d{2})")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")
_STAMP = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}\S*")
_FORMS = "a year, 2023-06, 2023-06-30, 2023-06-30T12:00:00+00:00 or a whole number in the unit of the time column"


def normalise_as_of(value: object) -> str:
    """Return a moment (a text, or what YAML makes of one) as it is kept; time stamps in UTC, to the second.

    Raises ValueError: it is none, or there is no such day.
    """
    if isinstance(value, datetime.datetime):
        return _stamp(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise ValueError(f"{value!r} is no moment; give {_FORMS}")
    text = str(value).strip()
    if _NUMBER.fullmatch(text):
        return text if _YEAR.fullmatch(text) else str(int(text))
    try:
        if match := _MONTH.fullmatch(text):
            datetime.date(int(match[1]), int(match[2]), 1)
            return text
        if _DAY.fullmatch(text):
            return datetime.date.fromisoformat(text).isoformat()
        if _STAMP.fullmatch(text):
            return _stamp(datetime.datetime.fromisoformat(text))
    except ValueError as error:
        raise ValueError(f"{text!r} is no moment ({error}); give {_FORMS}") from None
    raise ValueError(f"{text!r} is no moment; give {_FORMS}")


def last_time(as_of: str, unit: TimeUnit) -> int:
    """Return the last time that has come by a moment (`normalise_as_of`), in `unit`; years are taken whole.

    Raises RecipeError: the moment is a date, and the data's times are numbers of no known unit.
    """
    if _is_number(as_of) and (unit in ("number", "years") or not _YEAR.fullmatch(as_of)):
        return int(as_of)
    if unit == "number":
        raise RecipeError(
            f"snapshot.as_of={as_of} is a date, and the data's times are whole numbers of no known unit; give a whole "
            "number, or say what they count (snapshot.unit=years, seconds or milliseconds)"
        )
    if unit == "years":
        return int(as_of[:4])
    end = _end_seconds(as_of)
    return end - 1 if unit == "seconds" else end * 1000 - 1


def is_earlier(first: str, second: str, unit: TimeUnit = "number") -> bool:
    """Whether one moment (`normalise_as_of`) is before another, by what the data's times count.

    In seconds or milliseconds all moments compare; otherwise a date and a long number do not: False.
    """
    if unit in ("seconds", "milliseconds"):
        return last_time(first, unit) < last_time(second, unit)
    if _is_number(first) and _is_number(second):
        return int(first) < int(second)
    if any(_is_number(text) and not _YEAR.fullmatch(text) for text in (first, second)):
        return False
    return _end_seconds(first) < _end_seconds(second)


def _is_number(as_of: str) -> bool:
    return _NUMBER.fullmatch(as_of) is not None


def _stamp(value: datetime.datetime) -> str:
    aware = value.replace(tzinfo=datetime.UTC) if value.tzinfo is None else value.astimezone(datetime.UTC)
    return aware.isoformat(timespec="seconds")


def _end_seconds(as_of: str) -> int:
    if _STAMP.fullmatch(as_of):
        return int(datetime.datetime.fromisoformat(as_of).timestamp()) + 1
    year, month, day = int(as_of[:4]), int(as_of[5:7] or 12), int(as_of[8:10] or 0)
    if year < 1:
        raise RecipeError(f"snapshot.as_of={as_of}: there is no such year; give {_FORMS}")
    day = day or calendar.monthrange(year, month)[1]
    return calendar.timegm((year, month, day, 0, 0, 0)) + 86400
