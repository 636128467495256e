"""Backfills over versions of tables that keep them (`--every version`): a snapshot for each time they were written."""

from __future__ import annotations

import datetime
from typing import Any

from configs.errors import RecipeError
from configs.schema import Recipe
from configs.values.versioned_tables import NO_VERSIONS, is_versioned, parse_reference
from flows.backfill.spec import Backfill, Partition, span

_SETTLED_MS = 3_600_000
"""Writes that lie less than an hour apart are one: a nightly job writes table after table."""


def over_versions(client: Any, backfill: Backfill) -> Backfill:
    """Return a backfill over versions as one over their moments; others stay as they are.

    Raises RecipeError: the recipe reads no tables that keep versions, or none of them lies in the range; DataError: a
    table cannot be read.
    """
    if backfill.every != "version":
        return backfill
    from flows.backfill.actions import partition_recipe
    from flows.deploy.deployments import find_deployment

    deployment = find_deployment(client, backfill.deployment, backfills=True)
    recipe = partition_recipe(deployment, Partition(name="version", overrides=backfill.overrides))
    first, last = _bounds(backfill)
    written = [one for one in version_moments(recipe) if first <= one <= last]
    if not written:
        raise RecipeError(
            "--every version: the recipe's tables have no version in that time; leave --from and --to out"
        )
    return backfill.model_copy(update={"every": None, "first": None, "last": None, "at": settled(written)})


def version_moments(recipe: Recipe) -> list[int]:
    """Return when the recipe's tables were written of which it names no version: milliseconds since 1970, ascending.

    From when each of the tables has a version on. Raises RecipeError: there are none; DataError: one cannot be read.
    """
    from tasks.readers.table_formats.opened import open_versioned

    references = [parse_reference(file) for file in recipe.dataset.source_files() if is_versioned(file)]
    tables = [open_versioned(reference) for reference in references if not reference.is_fixed]
    if not tables:
        raise RecipeError(f"--every version: {NO_VERSIONS.removesuffix(', or leave snapshot.as_of out')}")
    written = [[version.milliseconds for version in table.versions()] for table in tables]
    first = max(map(min, written))
    return sorted({one for moments in written for one in moments if one >= first})


def settled(written: list[int]) -> tuple[str, ...]:
    """Return moments as a recipe writes them, the last one of those that lie close together."""
    following = [*written[1:], written[-1] + _SETTLED_MS]
    last = [one for one, after in zip(written, following, strict=True) if after - one >= _SETTLED_MS]
    moments = [datetime.datetime.fromtimestamp(one // 1000, datetime.UTC) for one in last]
    return tuple(moment.isoformat(timespec="seconds") for moment in moments)


def _bounds(backfill: Backfill) -> tuple[float, float]:
    first = -float("inf") if backfill.first is None else span("--from", backfill.first)[0].timestamp() * 1000
    # To the end of the last minute.
    last = float("inf") if backfill.last is None else span("--to", backfill.last)[1].timestamp() * 1000 + 59_999
    return first, last
