"""What a backfill is: a deployment, a range of snapshots and a grid of options, spread out into partitions."""

from __future__ import annotations

import datetime
import itertools
import math
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel

from configs.errors import RecipeError
from configs.reading.yaml_reader import parse_yaml
from flows.records.parameters import BACKFILL_TAG

Every = Literal["year", "month", "week", "day", "hour", "version"]
Reprocess = Literal["missing", "failed", "all"]
MAX_PARTITIONS = 10_000
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,59}")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")


class Partition(BaseModel, frozen=True):
    """One run of a backfill."""

    name: str
    snapshot: str | None = None
    """Moment as of which the graph is taken (`flows.records.parameters`)."""
    overrides: tuple[str, ...] = ()


class Backfill(BaseModel, frozen=True):
    """Everything that was asked; small enough for a Prefect variable, since partitions follow from it."""

    id: str
    deployment: str
    first: str | None = None
    last: str | None = None
    every: Every | None = None
    at: tuple[str, ...] = ()
    grid: dict[str, tuple[str, ...]] = {}
    """Option to its values, as texts."""
    overrides: tuple[str, ...] = ()
    """Of all partitions."""
    reprocess: Reprocess = "missing"
    max_active: int = 1
    reverse: bool = False
    promote: bool = False
    """Whether the gate may make one of its models champion."""
    resume_schedule: bool = False
    """The deployment's schedule was paused for the backfill and goes on after it."""
    created_at: str = ""
    complete: bool = False
    """All flow runs were created; what has none was skipped."""
    mlflow_run_id: str = ""
    mlflow_state: str = ""
    """What that run says of the backfill: RUNNING, FINISHED, FAILED or KILLED; empty until somebody looked."""

    @property
    def asked(self) -> dict[str, Any]:
        """What decides the partitions and how they run: two backfills with the same are the same."""
        return self.model_dump(exclude={"created_at", "complete", "mlflow_run_id", "mlflow_state", "resume_schedule"})

    @property
    def tag(self) -> str:
        """Tag of its flow runs."""
        return f"{BACKFILL_TAG}{self.id}"

    @property
    def queue(self) -> str:
        """Its work queue."""
        return f"backfill-{self.id}"

    def partitions(self) -> list[Partition]:
        """Return all partitions in the order in which they run. Raises RecipeError."""
        moments: list[tuple[str, str | None]] = [(text, text) for text in self.at]
        if self.every == "version":  # which there are is known where the tables are (`versions.over_versions`)
            moments = [*moments, ("version", None)]
        elif self.every is not None:
            moments = [*moments, *_moments(self.first or "", self.last or "", self.every)]
        if self.reverse:
            moments.reverse()
        number = math.prod([max(1, len(moments)), *(len(values) for values in self.grid.values())])
        if number > MAX_PARTITIONS:
            raise RecipeError(f"{number:,} partitions are more than {MAX_PARTITIONS:,}; divide the backfill")
        points = [dict(zip(self.grid, values, strict=True)) for values in itertools.product(*self.grid.values())]
        partitions = []
        for moment, snapshot in moments or [("", None)]:
            for point in points:
                texts = [f"{key}={value}" for key, value in point.items()]
                name = " ".join([moment, *texts]).strip()
                partitions.append(Partition(name=name, snapshot=snapshot, overrides=(*self.overrides, *texts)))
        if not (moments or self.grid):
            raise RecipeError("a backfill needs --from, --to and --every, or --at, or --grid")
        if len({partition.name for partition in partitions}) < len(partitions):
            raise RecipeError("two partitions have the same name: a moment or a value of the grid is listed twice")
        return partitions


def check_id(text: str) -> str:
    """Return the id. Raises RecipeError for one that is no name."""
    if not _ID.fullmatch(text):
        raise RecipeError(f"--id {text!r}: small letters, digits and '-', at most 60, a letter or digit first")
    return text


def default_id(deployment: str, parts: list[str]) -> str:
    """Return an id made of what is asked: asking the same again finds the same backfill."""
    text = "-".join([deployment, *parts]).lower()
    text = re.sub(r"[^a-z0-9]+", "-", text).strip("-")
    if len(text) <= 60:
        return text
    import hashlib

    return f"{text[:51].rstrip('-')}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def parse_grid(texts: list[str]) -> dict[str, tuple[str, ...]]:
    """Read `model.name=gcn,graphsage` and `seed=0..4`. Raises RecipeError."""
    grid: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, separator, values = text.partition("=")
        if not separator or not key or not values:
            raise RecipeError(f"grid {text!r}: write KEY=VALUE,VALUE or KEY=0..4")
        if key in grid:
            raise RecipeError(f"grid: {key} stands twice")
        grid[key] = tuple(_values(key, values))
    return grid


def _values(key: str, text: str) -> list[str]:
    match = _RANGE.fullmatch(text)
    if match:
        first, last = int(match[1]), int(match[2])
        if last < first:
            raise RecipeError(f"grid {key}={text}: the range is empty; write it from the smaller number")
        if last - first >= MAX_PARTITIONS:
            raise RecipeError(f"grid {key}={text}: more than {MAX_PARTITIONS:,} values")
        return [str(value) for value in range(first, last + 1)]
    if text.startswith("["):  # values that hold commas: [[15,10],[10,5]]
        import json

        loaded = parse_yaml(text, f"grid {key}={text[:200]}")
        if not isinstance(loaded, list) or not loaded:
            raise RecipeError(f"grid {key}={text[:200]}: not a list of values in YAML")
        return [value if isinstance(value, str) else json.dumps(value) for value in loaded]
    values = [value.strip() for value in text.split(",") if value.strip()]
    if not values:
        raise RecipeError(f"grid {key}={text[:200]}: there is no value")
    return values


def _moments(first: str, last: str, every: Every) -> list[tuple[str, str | None]]:
    (begin, _), (_, end) = span("--from", first), span("--to", last)
    if end < begin:
        raise RecipeError(f"--from {first} is after --to {last}; --reverse runs the newest first")
    unit = _UNITS[every]
    moments: list[tuple[str, str | None]] = []
    moment = unit.floor(begin)
    while moment <= end:
        name = f"{moment:{unit.name}}"
        moments.append((name, name if unit.snapshot is None else unit.snapshot(moment)))
        if len(moments) > MAX_PARTITIONS:
            raise RecipeError(f"--from {first} --to {last} --every {every}: more than {MAX_PARTITIONS:,} partitions")
        try:
            moment = unit.following(moment)
        except (ValueError, OverflowError):  # nothing follows the year 9999
            break
    return moments


def span(option: str, text: str) -> tuple[Moment, Moment]:
    """Return the first and the last minute of what is named: `2021` is all of that year."""
    if not text:
        raise RecipeError(f"{option} is missing: --from, --to and --every go together")
    units = [unit for name, unit in _UNITS.items() if name != "week"]
    for pattern, unit in [*((unit.name, unit) for unit in units), (_MINUTE, None)]:
        try:
            begin = datetime.datetime.strptime(text, pattern).replace(tzinfo=datetime.UTC)
            end = begin if unit is None else unit.following(begin) - datetime.timedelta(minutes=1)
        except (ValueError, OverflowError):  # no such date, or nothing follows it (9999)
            continue
        return begin, end
    raise RecipeError(f"{option} {text!r} is not a date: write 2021, 2021-06, 2021-06-30 or 2021-06-30T12")


Moment = datetime.datetime


class _Unit(NamedTuple):
    floor: Callable[[Moment], Moment]
    following: Callable[[Moment], Moment]
    name: str
    """Format of a partition's name."""
    snapshot: Callable[[Moment], str] | None = None
    """The unit's last moment; None: its name means all of it."""


def _days(moment: Moment, number: int) -> Moment:
    return moment + datetime.timedelta(days=number)


def _midnight(moment: Moment) -> Moment:
    return moment.replace(hour=0, minute=0)


_UNITS: dict[str, _Unit] = {
    "year": _Unit(lambda m: _midnight(m).replace(month=1, day=1), lambda m: m.replace(year=m.year + 1), "%Y"),
    "month": _Unit(lambda m: _midnight(m).replace(day=1), lambda m: _days(m, 32).replace(day=1), "%Y-%m"),
    "week": _Unit(  # from Monday on
        lambda m: _days(_midnight(m), -m.weekday()),
        lambda m: _days(m, 7),
        "%G-W%V",
        lambda m: f"{_days(m, 6):%Y-%m-%d}",
    ),
    "day": _Unit(_midnight, lambda m: _days(m, 1), "%Y-%m-%d"),
    "hour": _Unit(
        lambda m: m.replace(minute=0),
        lambda m: m + datetime.timedelta(hours=1),
        "%Y-%m-%dT%H",
        lambda m: f"{m:%Y-%m-%dT%H}:59:59+00:00",
    ),
}
_MINUTE = "%Y-%m-%dT%H:%M"
