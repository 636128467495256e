"""The parameters of a deployed recipe: what its form in Prefect's pages asks, and how the flow reads the answers."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable
from typing import Any

from configs.errors import RecipeError
from configs.moments import normalise_as_of

SCHEDULED = "scheduled"
PARTITION_TAG = "partition:"
"""Flow runs of a backfill carry it, with the partition's name."""
BACKFILL_TAG = "backfill:"
"""Likewise, with the backfill's id: their publications leave the champion alone ..."""
PROMOTE_TAG = "promote"
"""... but for those that carry this one too."""
NO_PROMOTE_TAG = "no-promote"
"""Of any flow run: its publication leaves the champion alone."""
SNAPSHOT_PATTERN = rf"^({SCHEDULED}|\d{{1,19}}|\d{{4}}-\d\d(-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:?\d\d)?)?)?)$"
OVERRIDE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*=.*$"


def requested_overrides(
    overrides: list[str] | None, options: dict[str, Any] | None, snapshot: str | None, scheduled_at: datetime.datetime
) -> list[str]:
    """Return all that a run changes in its recipe, as `dotted.key=value` texts; later ones win.

    `overrides` are as on the command line (a deployment's own give way to the form's `options`, of which None stays as
    the recipe has it); a `snapshot` of `scheduled` is the moment `scheduled_at`, so that a late run reads the same
    graph.
    """
    texts = list(overrides or ())
    texts += [f"{key}={json.dumps(value)}" for key, value in _leaves(options or {}, "")]
    if snapshot is not None:
        moment = scheduled_at.isoformat(timespec="seconds") if snapshot == SCHEDULED else snapshot
        texts.append(f"snapshot.as_of={json.dumps(moment)}")
    return texts


def _leaves(values: dict[str, Any], prefix: str) -> list[tuple[str, Any]]:
    leaves: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            leaves += _leaves(value, f"{prefix}{key}.")
        elif value is not None:
            leaves.append((f"{prefix}{key}", value))
    return leaves


def leaves_champion(tags: Iterable[str]) -> bool:
    """Whether a flow run with these tags is not to choose a champion: `--no-promote`, a backfill's not asked to."""
    tag_set = set(tags)
    backfills = PROMOTE_TAG not in tag_set and any(tag.startswith(BACKFILL_TAG) for tag in tag_set)
    return backfills or NO_PROMOTE_TAG in tag_set


def check_moment(text: str) -> None:
    """Raise RecipeError unless the text names a moment (or `scheduled`)."""
    if text == SCHEDULED:
        return
    try:
        normalise_as_of(text)
    except ValueError as error:
        raise RecipeError(f"snapshot: {error}, or `{SCHEDULED}`") from error
