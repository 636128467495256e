"""What a recipe expects of its data, next to what the champion was trained on: the section `expect`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from configs.base import ConfigModel

_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_BOUND = re.compile(r"(>=|<=)?\s*(\d[\d,_]*(?:\.\d+)?)\s*(%)?")
_BOUND_FORMS = "90 %, >= 90 %, '>= 90 %, <= 200 %', or a number of rows"


def age_seconds(text: str) -> float:
    """Return `30m`, `12h`, `7d`, `4w` in seconds. Raises ValueError."""
    match = _AGE.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not an age such as 12h, 7d or 4w (s, m, h, d, w)")
    return float(match[1]) * _UNIT_SECONDS[match[2]]


def bounds_of(text: str) -> list[tuple[str, float, bool]]:
    """Return the conditions of `>= 90 %, <= 5000`: `>=` or `<=`, number, whether per cent. Raises ValueError."""
    bounds = []
    for part in re.split(r",(?=\s*[<>])", text):
        match = _BOUND.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"{text!r} is not a number of rows; write {_BOUND_FORMS}")
        number = float(match[2].replace(",", "").replace("_", ""))
        if number < 1:
            raise ValueError(f"{text!r}: shares are written as 90 %; numbers of rows are 1 or more")
        bounds.append((match[1] or ">=", number, match[3] is not None))
    for is_share in (False, True):
        least, most = ([n for sign, n, share in bounds if sign == s and share is is_share] for s in (">=", "<="))
        if least and most and max(least) > min(most):
            raise ValueError(f"{text!r}: no number of rows is both")
    return bounds


def _bounds(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{value!r} is not a number of rows; write {_BOUND_FORMS}")
    text = f"{value:g}" if isinstance(value, float) else str(value)
    bounds_of(text)
    return text


def _by_table(of: Any) -> Any:
    """Return what reads one value, or a mapping of tables to values."""

    def read(value: Any) -> Any:
        if value is None or not isinstance(value, Mapping):
            return None if value is None else of(value)
        if not value:
            raise ValueError("no table is named")
        return {str(name): of(one) for name, one in value.items()}

    return read


def _age(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not an age such as 12h, 7d or 4w")
    age_seconds(value)
    return value.strip()


_FORMS = WithJsonSchema(
    {"anyOf": [{"type": ["string", "number", "null"]}, {"type": "object", "additionalProperties": {}}]}
)
Rows = Annotated[str | dict[str, str] | None, BeforeValidator(_by_table(_bounds)), _FORMS]
Ages = Annotated[str | dict[str, str] | None, BeforeValidator(_by_table(_age)), _FORMS]


class ExpectConfig(ConfigModel):
    """What the data has to be for a run or a prediction to go on. What is off beyond doubt is warned of in any case."""

    rows: Rows = None
    """Rows of each table, beside those that the champion was trained on: `90 %` (at least), `">= 90 %, <= 200 %"`, or a
    number; of one table or another by the names of their types: `{account: 90 %, payment: 1000}`. Types of nodes and
    of edges have rows."""
    drift: float | None = Field(default=None, gt=0, le=100)
    """Largest stability index of a feature, of labels or degrees against the champion's data; above 0.25 it is another
    population."""
    newest: Ages = None
    """How old the newest row of all tables with times may be, `2d`; or of one table or another: `{payment: 36h}`. By
    the clock, or by the moment of the snapshot."""
