"""What users' tables may hold besides clean rows: policies as options, and which columns go together."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BeforeValidator

from configs.base import split_commas
from configs.matching import did_you_mean

Missing = Literal["error", "mean", "zero", "category"]
"""What becomes of a feature's empty cell."""
_MISSING = get_args(Missing)


def _known_missing(value: Any) -> Any:
    """Check the words here: the message of pydantic would list what is wrong with both forms of the option."""
    if not isinstance(value, str | dict):
        raise ValueError(f"{value!r} is neither one of {', '.join(_MISSING)} nor columns with one each: {{age: mean}}")
    for column, word in (value if isinstance(value, dict) else {"": value}).items():
        if word not in _MISSING:
            of = f" of column {column!r}" if column else ""
            hint = f"{did_you_mean(str(word), _MISSING)}; known: {', '.join(_MISSING)}"
            raise ValueError(f"unknown word {word!r}{of}{hint}")
    return value


MissingOption = Annotated[Missing | dict[str, Missing], BeforeValidator(_known_missing)]
"""One word for all columns of numbers, or a word for a column."""


def _as_texts(value: Any) -> Any:
    """A text is one value, commas and all; YAML's null and numbers are what somebody forgot to quote."""
    values = [value] if isinstance(value, str) else value
    if isinstance(values, list | tuple):
        for one in values:
            if not isinstance(one, str):
                raise ValueError(f'{one!r} is not a text; quote it, such as ["", "NA", "-999"]')
    return values


Texts = Annotated[tuple[str, ...], BeforeValidator(_as_texts)]


def _as_column(value: Any) -> Any:
    """Columns without names are numbered, and YAML takes `source: 0` for a number."""
    return str(value) if type(value) is int and value >= 0 else value


Column = Annotated[str, BeforeValidator(_as_column)]
Columns = Annotated[tuple[Column, ...], BeforeValidator(split_commas)]


def _known_header(value: Any) -> Any:
    """Check the words here: the message of pydantic would list what is wrong with both forms of the option."""
    header = {"true": True, "false": False}.get(value.lower(), value) if isinstance(value, str) else value
    if not isinstance(header, bool) and header != "auto":
        raise ValueError(f"{value!r} is none of true, false and auto")
    return header


Header = Annotated[bool | Literal["auto"], BeforeValidator(_known_header)]


RESERVED = frozenset({"node_id", "src", "dst", "label", "time", "weight", "feat"})


def stored_name(column: str) -> str:
    """Return the name under which a feature column is stored; other columns have other names.

    Names that mean something else in our tables get a `_`, and so do those that are such a name with `_` behind it.
    """
    return f"{column}_" if column.rstrip("_") in RESERVED else column


def mask_name(column: str) -> str:
    """Return the name of the column that says where a feature's cells were empty."""
    return f"{stored_name(column)}_missing"


# A moment whose year, month and day no format gives by default.
_SAMPLE = datetime.datetime(2023, 12, 31, 12, 34, 56, tzinfo=datetime.UTC)


def check_time_format(where: str, column: str | None, time_format: str | None) -> None:
    """Refuse a form of times that Python's strptime cannot read, or that does not say which day is meant.

    Raises ValueError: naming the section and the form, or there is no column that it is for.
    """
    if not time_format:
        return
    if not column:
        raise ValueError(f"{where}: time_format without a column `time`")
    named = f"{where}: time_format {time_format!r}"
    example = 'write it as of Python\'s strptime, such as time_format: "%d.%m.%Y"'
    parts = re.findall("%(.?)", time_format, re.DOTALL)
    if "Z" in parts:
        raise ValueError(f"{named}: %Z, a zone's name, depends on the machine; write offsets, and %z")
    try:
        moment = datetime.datetime.strptime(_SAMPLE.strftime(time_format), time_format)
    except (ValueError, re.error) as error:  # re.error: a part that stands twice, or that another one holds (%Y in %c)
        raise ValueError(f"{named} cannot be read ({error}); {example}") from None
    has_week_alone = {"U", "W"} & set(parts) and not {"a", "A", "w", "u", "d", "j"} & set(parts)
    has_day_alone = moment.day == _SAMPLE.day and moment.month != _SAMPLE.month
    if has_week_alone or has_day_alone or moment.year != _SAMPLE.year:
        raise ValueError(f"{named} does not say which year and day are meant; {example}")


def missing_by_column(
    missing: Missing | Mapping[str, Missing], features: tuple[str, ...], categorical: tuple[str, ...]
) -> dict[str, Missing]:
    """Return what becomes of each feature's empty cells.

    One word goes for all columns of numbers; an empty category is one of its own unless its column says otherwise.

    Raises ValueError: a column that is no feature, or a policy that its kind has not.
    """
    named: Mapping[str, Missing] = {} if isinstance(missing, str) else missing
    for column in named:
        if column not in (*features, *categorical):
            raise ValueError(f"missing names {column!r}, which is neither in features nor in categorical")
    numbers: Missing = missing if isinstance(missing, str) else "error"
    policies: dict[str, Missing] = {column: named.get(column, numbers) for column in features}
    policies |= {column: named.get(column, "category") for column in categorical}
    for column in features:
        if policies[column] == "category":
            raise ValueError(
                f"missing: category is for columns of categories, and {column!r} is one of numbers: mean or zero, each "
                f"of which adds a column {mask_name(column)} that says where cells were empty"
            )
    for column in categorical:
        if policies[column] not in ("error", "category"):
            raise ValueError(f"missing: {policies[column]} is for columns of numbers, and {column!r} holds categories")
    return policies


def check_columns(
    where: str, roles: Mapping[str, str | None], labels: tuple[str, ...], features: Mapping[str, Missing]
) -> None:
    """Refuse a column that means two things, and names that would collide in our tables.

    `roles` are `id`, `source`, ... to the column that has it; a time and a weight may be features too. `features` are
    columns of numbers and categories, with what becomes of their empty cells.

    Raises ValueError: naming the section (`where`) and the column.
    """
    taken: dict[str, str] = {}
    for role, column in (*roles.items(), *(("label", label) for label in labels)):
        if column is None:
            continue
        if column in taken:
            again = "twice" if taken[column] == role else f"as {taken[column]} and as {role}"
            raise ValueError(f"{where}: column {column!r} is named {again}")
        taken[column] = role
    for column in features:
        if taken.get(column, "time") not in ("time", "weight"):
            raise ValueError(
                f"{where}: column {column!r} is named as {taken[column]} and as a feature"
                + ("; a model that reads the label has nothing left to learn" if taken[column] == "label" else "")
            )
    masks = {mask_name(column): column for column, policy in features.items() if policy in ("mean", "zero")}
    for column in features:
        if stored_name(column) in masks:
            raise ValueError(
                f"{where}: column {column!r} has the name of the one that says where {masks[stored_name(column)]!r} is "
                "empty; rename it, or leave out `missing`"
            )


def refuse_repeated(where: str, columns: Iterable[str]) -> None:
    """Refuse a column that stands in a list twice. Raises ValueError naming it."""
    seen: set[str] = set()
    for column in columns:
        if column in seen:
            raise ValueError(f"{where}: column {column!r} is listed twice among features, categorical and texts")
        seen.add(column)
