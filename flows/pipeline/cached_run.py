"""A run that finds everything: no stage runs, so neither Prefect's engine nor a server is started for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from configs.errors import GraphmillError
from configs.expectations import ExpectConfig
from configs.schema import Recipe
from flows.notifications.events import failure_before
from flows.pipeline.hooks import conclude, result_text
from flows.pipeline.watched_data import DataWatch
from flows.records.run_record import RunRecord, all_runs, is_killed, record_path, recorded
from flows.services.past_runs import PastRun, write_past_run
from flows.terminal.selection import Selection
from tasks.calls import ParentGoneError, find_stage, load_stage, mark_used, stage_record
from tasks.stage import StageOutcome
from tasks.storage.home import Home
from tasks.storage.source_digests import SourceDigests

Progress = Callable[[str, float, float, str, str], None]
FLOW = "train_graph"


def find_all_stages(
    home: Home, recipe: Recipe, selection: Selection, progress: Progress
) -> list[StageOutcome[Any]] | None:
    """Return the artifact of each stage in order, as the flow would find it; None where one is to be made.

    Source files that changed are read, to know them by their content; `progress` hears of it.
    """
    keys: dict[str, str] = {}
    found = []
    try:
        for name in selection.all:
            stage = load_stage(name)
            stage.key_content(recipe, SourceDigests(home, partial(progress, name)))
            outcome = find_stage(name, recipe, {parent: keys[parent] for parent in stage.parents}, home)
            if outcome is None:
                return None
            keys[name] = outcome.manifest.key
            found.append(outcome)
    except (GraphmillError, ParentGoneError):
        return None  # the flow says it, or mends it
    return found


def is_expected(home: Home, recipe: Recipe, found: list[StageOutcome[Any]], say: Callable[[str], None]) -> bool:
    """Whether the data that was found, however long ago it came, is what the recipe expects; `say` hears its age."""
    if recipe.expect == ExpectConfig():  # the run that made these has said what it saw
        return True
    keys = {outcome.manifest.stage: outcome.manifest.key for outcome in found}
    try:
        DataWatch(home, recipe).look("ingest", keys, say, say)
    except GraphmillError:
        return False
    return True


def record_cached_run(
    home: Home, recipe: Recipe, record: RunRecord, parameters: dict[str, Any], found: list[StageOutcome[Any]]
) -> RunRecord | None:
    """Write down a run that found all of its stages, in the home and in Prefect's history; None: the flow has to.

    That is where there is more to do than to find: runs that were killed to be told of, a recipe that is well again.
    """
    if any(is_killed(home, one) for one in all_runs(home)) or failure_before(home, record):
        return None
    record.stages = {outcome.manifest.stage: stage_record(outcome) for outcome in found}
    conclude(home, record)
    moment = f"{record.started:%Y-%m-%d %H:%M:%S}"

    @contextmanager
    def recording(identity: str) -> Iterator[None]:
        record.id = identity
        try:
            with recorded(home, record):
                for outcome in found:
                    mark_used(outcome.folder)
                yield
        except BaseException:
            record_path(home, identity).unlink(missing_ok=True)  # Prefect's history has no such run either
            raise

    run = PastRun(
        flow=FLOW,
        name=f"{record.source.rpartition('/')[2].removesuffix('.yaml')} {moment}",
        parameters=parameters,
        tags=record.tags,
        began=record.started,
        tasks=dict.fromkeys(record.selected, "Cached"),
        message="all stages were found, none had to run",
        key="result",
        text=result_text(home, record),
        title=f"{record.recipe}: what came of it",
    )
    return None if write_past_run(home, run, recording) is None else record
