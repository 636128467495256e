"""`graphmill run`: start what the flow needs, run it, say what came of it."""

from __future__ import annotations

import json
import logging
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from configs.errors import StageError
from configs.load import load_own_recipe
from configs.schema import Recipe
from flows.commands.recipes.outcome import failure_json, outcome_json, show_outcome
from flows.records.parameters import leaves_champion
from flows.records.run_record import RunRecord, new_record
from flows.records.tables import stage_text
from flows.services.addresses import check_answers, check_tracking_store, is_away, server_went_away
from flows.services.environment import own_server_url, prepare_environment
from flows.terminal.console import err, out
from flows.terminal.progress import REPORTER, Reporter
from flows.terminal.room import check_home
from flows.terminal.selection import Selection, select_stages
from flows.terminal.waiting import waiting
from flows.web.temporary_server import EmbeddedServer, embedded_server
from tasks.processes import ending
from tasks.processes.run_context import RunContext, publishing_from
from tasks.publish.vectors import with_versions
from tasks.storage.home import Home
from tasks.storage.home_files.temporary import temporary_folder
from tasks.train.families import check_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


@dataclass(frozen=True)
class RunRequest:
    """What the command line asks for."""

    recipe: str
    overrides: list[str] = field(default_factory=list)
    only: list[str] = field(default_factory=list)
    from_stage: str | None = None
    force: list[str] = field(default_factory=list)
    as_json: bool = False
    verbose: bool = False
    tags: list[str] = field(default_factory=list)
    check_seeds: int = 0
    """First see with so many seeds whether anything later than a moment reaches the model; 0: do not."""


def run(home: Home, request: RunRequest) -> RunRecord:
    """Run a recipe and print the outcome. Raises UserError before anything is started, if it can."""
    selection = select_stages(request.only, request.from_stage, request.force)
    recipe = load_own_recipe(request.recipe, request.overrides)
    if "train" in selection.stages:
        check_options(recipe)
    if request.check_seeds:
        from flows.commands.recipes.leaks import refuse_leaks

        refuse_leaks(home, recipe, request.check_seeds, quiet=request.as_json)
    record = _run_from_cache(home, request, recipe, selection)
    if record is None:
        if "publish" in selection.stages:
            check_tracking_store()

        def say_cancelled() -> None:
            if request.as_json:
                print(json.dumps(failure_json(home, request.recipe, ending.TerminatedError())), flush=True)

        with ending.closing(say_cancelled):
            record = run_flow(home, partial(run_recipe, home, request), verbose=request.verbose)
    show_outcome(err() if request.as_json else out(), home, record)
    if request.as_json:
        print(json.dumps(outcome_json(record)), flush=True)
    return record


def _run_from_cache(home: Home, request: RunRequest, recipe: Recipe, selection: Selection) -> RunRecord | None:
    """Return the run where everything is there, and no server keeps the history of runs; else None."""
    from flows.pipeline.run_endings import find_all_stages, is_expected, record_cached_run

    if selection.force or request.verbose:
        return None
    check_home(home)
    prepare_environment(home)
    if own_server_url() is not None:
        return None
    recipe = with_versions(recipe, home)
    reporter = Reporter(err())
    record = new_record(recipe, request.recipe, request.overrides, request.tags, selection.stages)
    with publishing_from(RunContext(leave_champion=leaves_champion(request.tags))):
        outcomes = find_all_stages(home, recipe, selection, reporter.progress)
    said: list[str] = []
    if outcomes is None or not is_expected(home, recipe, outcomes, said.append):
        return None  # the flow says it, and its record
    if not record_cached_run(home, record, outcomes):
        return None
    for name, stage in record.stages.items():
        reporter.end(name, stage_text(stage))
    for text in said:
        reporter.message("ingest", text)
    reporter.close()
    return record


def run_recipe(home: Home, request: RunRequest) -> RunRecord:
    """Call the pipeline's flow."""
    from prefect import tags

    from flows.pipeline.train import train_graph

    with tags(*request.tags):
        result = train_graph(
            recipe=request.recipe,
            overrides=request.overrides,
            home=str(home.root),
            only=request.only or None,
            from_stage=request.from_stage,
            force=request.force or None,
        )
    return RunRecord.model_validate(result)


def run_flow(home: Home, call: Callable[[], T], *, verbose: bool) -> T:
    """Call a flow from the command line: with a Prefect server, progress on the terminal, and an orderly end."""
    with flow_server(home, verbose=verbose) as server:
        return call_flow(server, call, verbose=verbose)


@contextmanager
def flow_server(home: Home, *, verbose: bool) -> Iterator[EmbeddedServer | None]:
    """Have a Prefect server for the flows that the block calls: the user's own (None), else one that starts now."""
    check_home(home)
    prepare_environment(home, verbose=verbose)
    try:
        with ending.prompt_ending(), temporary_folder(home), ExitStack() as stack:
            server = own_server_url()
            if server is not None:
                check_answers(server)
            else:
                err().print("starting a Prefect server for this run", style="dim")
            yield None if server else stack.enter_context(embedded_server(home))
    except BaseException:
        why = ending.reason()
        if why is None:
            raise
        raise why from None


def call_flow(server: EmbeddedServer | None, call: Callable[[], T], *, verbose: bool) -> T:
    """Call a flow inside of `flow_server`'s block, with progress on the terminal."""
    with waiting("loading Prefect"):
        import httpx
        from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    quiet = {}
    if server is not None:
        with waiting("waiting for the Prefect server"):
            server.wait()
        # Heartbeats tell a lasting server that a run died; this one dies too, and they hold up the end for a second.
        quiet = {PREFECT_FLOWS_HEARTBEAT_FREQUENCY: None}
    logging.raiseExceptions = verbose  # else Prefect says of each line of its log that the server did not take it
    reporter = Reporter(err(), verbose=verbose)
    REPORTER.set(reporter)
    reporter.waits("the flow begins")
    with temporary_settings(quiet):
        try:
            return call()
        except httpx.HTTPError as error:
            if is_away(error):
                said = server_went_away() if server is None else server.trouble(f"failed to answer: {error}")
                raise StageError(said) from error
            raise
        finally:
            reporter.close()
            with waiting("Prefect takes the last of the log"):
                _flush_prefect()


def _flush_prefect() -> None:
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    patience = 0.5 if ending.is_ending() else 10.0
    APILogWorker.drain_all(timeout=patience)
    EventsWorker.drain_all(timeout=patience)
