"""A run that finds everything: no stage runs, so neither Prefect's engine nor a server is started for it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from configs.errors import GraphmillError
from configs.schema import Recipe
from configs.values.expectations import ExpectConfig
from flows.notifications.events import failure_before
from flows.pipeline.run_endings import conclude
from flows.pipeline.watched_data import DataWatch
from flows.records.run_record import RunRecord, all_runs, is_killed, recorded
from flows.terminal.selection import Selection
from tasks.calls import ParentGoneError, StageRecord, find_stage, load_stage
from tasks.stage import StageOutcome
from tasks.storage.home import Home
from tasks.storage.home_files.source_digests import SourceDigests

Progress = Callable[[str, float, float, str, str], None]


def find_all_stages(
    home: Home, recipe: Recipe, selection: Selection, progress: Progress
) -> list[StageOutcome[Any]] | None:
    """Return the artifact of each stage in order, as the flow would find it; None where one is to be made."""
    keys: dict[str, str] = {}
    outcomes = []
    try:
        for name in selection.all:
            stage = load_stage(name)
            stage.key_content(recipe, SourceDigests(home, partial(progress, name)))
            outcome = find_stage(name, recipe, {parent: keys[parent] for parent in stage.parents}, home)
            if outcome is None:
                return None
            keys[name] = outcome.manifest.key
            outcomes.append(outcome)
    except (GraphmillError, ParentGoneError):
        return None  # the flow says it, or mends it
    return outcomes


def is_expected(home: Home, recipe: Recipe, outcomes: list[StageOutcome[Any]], say: Callable[[str], None]) -> bool:
    """Whether the data that was found, however long ago it came, is what the recipe expects; `say` hears its age."""
    if recipe.expect == ExpectConfig():  # the run that made these has said what it saw
        return True
    keys = {outcome.manifest.stage: outcome.manifest.key for outcome in outcomes}
    try:
        DataWatch(home, recipe).look("ingest", keys, say, say)
    except GraphmillError:
        return False
    return True


def record_cached_run(home: Home, record: RunRecord, outcomes: list[StageOutcome[Any]]) -> bool:
    """Write down in the home a run that found all of its stages; False: there is more to do, which the flow has to."""
    if any(is_killed(home, one) for one in all_runs(home)) or failure_before(home, record):
        return False
    with recorded(home, record):
        record.stages = {outcome.manifest.stage: StageRecord.of(outcome) for outcome in outcomes}
        conclude(home, record)
    return True
