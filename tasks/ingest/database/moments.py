"""Moments and lengths of time as a recipe writes them: `2024-01-31`, `90d`, or whole numbers in the data's own unit."""

from __future__ import annotations

import calendar
import datetime
import re

from configs.errors import RecipeError
from configs.moments import TimeUnit, normalise_as_of

_LENGTH = re.compile(r"([1-9][0-9]{0,8})\s*(s|min|h|d|w)?")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_LENGTHS = "weeks, days, hours, minutes or seconds (2w, 90d, 12h, 30min, 45s), or a whole number in the unit"
DAY = 86400


def normalise_moment(value: object) -> str:
    """Return a moment as it is kept, one text for each. Raises ValueError where it is none."""
    try:
        return normalise_as_of(value)
    except ValueError as error:
        raise ValueError(str(error).replace("of the time column", "of the time columns")) from None


def normalise_length(value: object) -> str:
    """Return a length of time as it is kept: `90d`, or a whole number. Raises ValueError where it is none."""
    text = str(value).strip().lower() if isinstance(value, str | int) and not isinstance(value, bool) else ""
    match = _LENGTH.fullmatch(text)
    if match is None:
        is_month = re.fullmatch(r"[0-9]+\s*(m|mo|months?|y|years?)", text)
        hint = "; months differ in length: count days" if is_month else ""
        raise ValueError(f"{value!r} is no length of time: give {_LENGTHS} of the time columns{hint}")
    return f"{match[1]}{match[2] or ''}"


def moment_time(moment: str, unit: TimeUnit, option: str) -> int:
    """Return the time at which a moment (`normalise_moment`) begins; days, months and years do at midnight UTC.

    Raises RecipeError: the moment is a date and times are whole numbers, or the other way round.
    """
    is_whole = re.fullmatch(r"[+-]?\d+", moment) is not None
    if unit == "number":
        if is_whole:
            return int(moment)
        raise RecipeError(
            f"{option}: {moment} is a date, and the tables' times are whole numbers; give whole numbers, or say what "
            "they count (epoch: seconds, or milliseconds, in dataset.tables)"
        )
    if is_whole and not re.fullmatch(r"\d{4}", moment):
        raise RecipeError(f"{option}: {moment} is a number, and the tables' times are dates; give a date: 2024-06-30")
    if len(moment) > len("2024-06-30"):
        return int(datetime.datetime.fromisoformat(moment).timestamp())
    year, month, day = int(moment[:4]), int(moment[5:7] or 1), int(moment[8:10] or 1)
    return calendar.timegm((year, month, day, 0, 0, 0))


def length_time(length: str, unit: TimeUnit, option: str) -> int:
    """Return a length of time (`normalise_length`) in the unit of the times.

    Raises RecipeError: days are asked for and times are whole numbers, or the other way round.
    """
    match = _LENGTH.fullmatch(length)
    assert match is not None
    if unit == "number":
        if match[2]:
            raise RecipeError(
                f"{option}: {length} is a length in days or hours, and the tables' times are whole numbers; give a "
                "whole number, or say what they count (epoch: seconds, or milliseconds, in dataset.tables)"
            )
        return int(match[1])
    if not match[2]:
        raise RecipeError(f"{option}: {length} has no unit, and the tables' times are dates; give days: {length}d")
    return int(match[1]) * _SECONDS[match[2]]


def time_text(time: int, unit: TimeUnit) -> str:
    """Return a time as a recipe would write it."""
    if unit == "number":
        return str(time)
    try:
        moment = datetime.datetime.fromtimestamp(time, datetime.UTC)
    except (OverflowError, ValueError, OSError):
        return f"{time} seconds from 1970"
    return moment.strftime("%Y-%m-%d" if time % DAY == 0 else "%Y-%m-%dT%H:%M:%S")


def end_of_data(newest: int, unit: TimeUnit) -> int:
    """Return the first time of which nothing can be known, where `newest` is the newest row: days are taken whole."""
    return newest + 1 if unit == "number" else (newest // DAY + 1) * DAY
