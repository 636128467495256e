"""`graphmill run`: start what the flow needs, run it, say what came of it."""

from __future__ import annotations

import json
import logging
import os
import time
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from socket import gethostname
from typing import TYPE_CHECKING, Any, TypeVar

from configs.errors import StageError
from configs.load import load_own_recipe
from configs.metric_names import telling
from configs.schema import Recipe
from flows.machines.placement import check_begins_here, place_run, take_part
from flows.pipeline.hooks import describe
from flows.records.parameters import leaves_champion
from flows.records.run_record import RunRecord, all_runs, new_record, now_text
from flows.services.addresses import (
    check_answers,
    check_tracking_store,
    is_away,
    mlflow_page,
    prefect_page,
    server_went_away,
)
from flows.services.environment import own_server_url, prepare_environment
from flows.services.settings import read_settings
from flows.services.state import is_up
from flows.terminal.console import Reporter, err, format_bytes, format_seconds, out, print_facts, table
from flows.terminal.invocation import graphmill_command
from flows.terminal.room import check_home
from flows.terminal.selection import Selection, select_stages
from flows.terminal.waiting import waiting
from flows.web.temporary_server import EmbeddedServer, embedded_server
from tasks.processes import ending
from tasks.processes.run_context import RunContext, publishing_from
from tasks.publish.vectors import with_versions
from tasks.storage.artifacts import ArtifactStore
from tasks.storage.home import Home
from tasks.storage.manifests import EvalReport
from tasks.storage.temporary import temporary_folder
from tasks.train.families import check_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

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
    hosts: str | None = None
    """Machines of the training: `a,b,c`, or a file."""
    ssh: bool = False
    """Start the others of them."""


def run(home: Home, request: RunRequest) -> RunRecord | None:
    """Run a recipe and print the outcome; None: this machine lent its ranks to another's run.

    Raises UserError before anything is started, if it can.
    """
    selection = select_stages(request.only, request.from_stage, request.force)
    if _over_machines(request, selection):
        placed = place_run(request.recipe, request.overrides, request.hosts, ssh=request.ssh)
        request, train = replace(request, overrides=placed.overrides), placed.recipe.train
        if placed.text:
            err().print(placed.text, style="dim", markup=False)
        if train.ssh:
            check_begins_here(train)
        if "train" in selection.stages:
            check_options(placed.recipe)
        if train.machine_rank > 0 and train.shared_home:
            lend_ranks(home, with_versions(placed.recipe, home), selection)
            return None
    found = _run_from_cache(home, request, selection)
    if found is not None:
        _show(home, request, found)
        return found
    if "publish" in selection.stages:
        check_tracking_store()

    def read() -> None:
        load_own_recipe(request.recipe, request.overrides)

    def say_cancelled() -> None:
        if request.as_json:
            print(json.dumps(failure_json(home, request.recipe, ending.TerminatedError())), flush=True)

    with ending.closing(say_cancelled), _seen_by_others(home, request, selection):
        record = run_flow(home, partial(run_recipe, home, request), verbose=request.verbose, meanwhile=read)
    _show(home, request, record)
    return record


def _over_machines(request: RunRequest, selection: Selection) -> bool:
    """Whether all machines, where there are several, have something to do."""
    asked = request.hosts is not None or request.ssh or "train" in selection.stages
    return asked or take_part(load_own_recipe(request.recipe, request.overrides), selection.stages)


def _seen_by_others(home: Home, request: RunRequest, selection: Selection) -> AbstractContextManager[object]:
    """Let other machines of a training see that this command is there, long before a server has started."""
    recipe = load_own_recipe(request.recipe, request.overrides)
    if recipe.train.num_machines == 1 or not _over_machines(request, selection):
        return nullcontext()
    from tasks.train.ranks.presence import announced

    check_home(home)
    return announced(home, with_versions(recipe, home))


def _show(home: Home, request: RunRequest, record: RunRecord) -> None:
    show_outcome(err() if request.as_json else out(), home, record)
    if request.as_json:
        print(json.dumps(outcome_json(record)), flush=True)


def _run_from_cache(home: Home, request: RunRequest, selection: Selection) -> RunRecord | None:
    """Look whether anything is to be made; returns None where it is, else the run that it came to."""
    from flows.pipeline.cached_run import find_all_stages, is_expected, record_cached_run

    recipe = load_own_recipe(request.recipe, request.overrides)
    if selection.force or request.verbose:
        return None
    check_home(home)
    prepare_environment(home)
    recipe = with_versions(recipe, home)
    reporter = Reporter(err())
    record = new_record(recipe, request.recipe, request.overrides, request.tags, selection.stages)
    with publishing_from(RunContext(leave_champion=leaves_champion(request.tags))):
        found = find_all_stages(home, recipe, selection, reporter.progress)
    parameters = {**_parameters(home, request), "snapshot": None, "options": None, "parent_run": None}
    said: list[str] = []
    if found is not None and not is_expected(home, recipe, found, said.append):
        return None  # the flow says it, and its record
    done = None if found is None else record_cached_run(home, recipe, record, parameters, found)
    if done is None:
        return None
    for name, stage in done.stages.items():
        reporter.finish(name, describe(stage))
    for text in said:
        reporter.message("ingest", text)
    reporter.close()
    return done


def _parameters(home: Home, request: RunRequest) -> dict[str, Any]:
    """Return what the pipeline's flow is called with."""
    return {
        "recipe": request.recipe,
        "overrides": request.overrides,
        "home": str(home.root),
        "only": request.only or None,
        "from_stage": request.from_stage,
        "force": request.force or None,
    }


def lend_ranks(home: Home, recipe: Recipe, selection: Selection) -> None:
    """Take part in a run of these stages by another machine, and print where the training's artifact is."""
    from tasks.train.ranks.join import join_training

    with ending.prompt_ending(), temporary_folder(home):
        evaluates = "evaluate" in selection.stages
        folder = join_training(recipe, home, force=selection.force, evaluates=evaluates, message=err().print)
    out().print(f"train     {folder}", markup=False, soft_wrap=True)


def run_recipe(home: Home, request: RunRequest) -> RunRecord:
    """Call the pipeline's flow."""
    from prefect import tags

    from flows.pipeline.train import train_graph

    with tags(*request.tags):
        result = train_graph(**_parameters(home, request))
    return RunRecord.model_validate(result)


def run_flow(home: Home, call: Callable[[], T], *, verbose: bool, meanwhile: Callable[[], object] | None = None) -> T:
    """Call a flow from the command line: with a Prefect server, progress on the terminal, and an orderly end.

    Args:
        home: where the server's database is, where the user has no server of their own.
        call: imports the flow and calls it.
        verbose: show Prefect's log too.
        meanwhile: what to do while the server starts; a mistake that it finds ends all before the flow begins.
    """
    with flow_server(home, verbose=verbose) as server:
        if meanwhile is not None:
            meanwhile()
        return call_flow(server, call, verbose=verbose)


@contextmanager
def flow_server(home: Home, *, verbose: bool) -> Iterator[EmbeddedServer | None]:
    """Have a Prefect server for the flows that the block calls: the user's own (None), else one that starts now."""
    check_home(home)
    prepare_environment(home, verbose=verbose)
    with ExitStack() as stack:
        stack.enter_context(_raise_the_reason())
        stack.enter_context(ending.prompt_ending())
        stack.enter_context(temporary_folder(home))
        own = own_server_url()
        if own is not None:
            check_answers(own)
        else:
            err().print("starting a Prefect server for this run", style="dim")
        yield None if own else stack.enter_context(embedded_server(home))


def call_flow(server: EmbeddedServer | None, call: Callable[[], T], *, verbose: bool) -> T:
    """Call a flow inside of `flow_server`'s block, with progress on the terminal."""
    with waiting("loading Prefect"):
        import httpx
        from prefect.settings import PREFECT_FLOWS_HEARTBEAT_FREQUENCY, temporary_settings

    from flows.terminal.progress import REPORTER

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
    """Send logs and events on their way before the server goes."""
    from prefect.events.worker import EventsWorker
    from prefect.logging.handlers import APILogWorker

    patience = 0.5 if ending.is_ending() else 10.0
    APILogWorker.drain_all(timeout=patience)
    EventsWorker.drain_all(timeout=patience)


@contextmanager
def _raise_the_reason() -> Iterator[None]:
    """Raise the reason for which the run was given up instead of the interrupt that ended it."""
    try:
        yield
    except BaseException:
        why = ending.reason()
        if why is None:
            raise
        raise why from None


def outcome_json(record: RunRecord) -> dict[str, Any]:
    """Return the object that `--json` prints; scripts rely on these keys."""
    names = ("name", "status", "seconds", "peak_bytes", "rows", "bytes", "key", "warnings", "repaired")
    return {
        "status": record.status,
        "recipe": record.recipe,
        "metrics": record.metrics,
        "controls": record.controls,
        "stages": [{name: stage[name] for name in names} for stage in record.stages.values()],
        "artifacts": {name: stage["folder"] for name, stage in record.stages.items()},
        "report": record.report or None,
        "map": record.map or None,
        "champion": record.champion or None,
        "mlflow_run_id": record.mlflow_run_id,
        "prefect_flow_run_id": record.id or None,
    }


def failure_json(home: Home, recipe: str, error: BaseException) -> dict[str, Any]:
    """Return what `--json` prints where a run did not succeed: as far as it came, and why it ended."""
    own = [record for record in all_runs(home) if record.process == os.getpid() and record.host == gethostname()]
    record = own[0] if own else RunRecord(id="", recipe=recipe, started_at=now_text())
    status = "failed" if isinstance(error, Exception) else "cancelled"
    return {**outcome_json(record), "status": status, "error": str(error) or type(error).__name__}


def show_outcome(console: Console, home: Home, record: RunRecord) -> None:
    """Print metrics, what the stages did, and where to look."""
    show_metrics(console, record.recipe, record.scores())
    show_label_shares(console, home, record)
    stages = table("stage", "", "time", "peak memory", "rows", "size", right=("time", "peak memory", "rows", "size"))
    for name, stage in record.stages.items():
        stages.add_row(
            name,
            stage["status"],
            format_seconds(stage["seconds"]),
            format_bytes(stage["peak_bytes"]),
            record.rows_text(name),
            format_bytes(stage["bytes"]),
        )
    console.print(stages)
    print_facts(console, where_to_look(home, record))
    for name, stage in record.stages.items():
        if stage["repaired"]:
            console.print(f"repaired  {name}: {stage['repaired']}", style="yellow", markup=False)
        for warning in stage["warnings"]:
            console.print(f"warning   {name}: {warning}", style="yellow", markup=False)


def show_metrics(console: Console, head: str, rows: list[tuple[str, dict[str, float]]]) -> None:
    """Print metrics, if there are any: a row a split and control."""
    if rows:
        names = telling(name for _, values in rows for name in values)
        metrics = table(head, *names, right=names)
        for row, values in rows:
            metrics.add_row(row, *(f"{values[name]:.4f}" if name in values else "" for name in names))
        console.print(metrics)


def show_label_shares(console: Console, home: Home, record: RunRecord) -> None:
    """Print F1 of nodes' vectors by the share of labels that are known, by which papers compare vectors."""
    stage = record.stages.get("evaluate")
    evaluation = ArtifactStore(home).load("evaluate", stage["key"], EvalReport) if stage else None
    report = evaluation.report if evaluation is not None else {}
    shares = report.get("vectors", {}).get("label_shares", {}).get("shares", [])
    if shares:
        names = [f"{100 * one['share']:g} %" for one in shares]
        shown = table("labels known", *names, right=names)
        for average in ("micro", "macro"):
            shown.add_row(f"F1, {average}", *(f"{one[average]:.4f}" for one in shares))
        console.print(shown)


def where_to_look(home: Home, record: RunRecord) -> list[tuple[str, str]]:
    """Return what came of a run, and its pages where servers have them; else how to get at those."""
    lines = [("model", record.champion)] if record.champion else []
    lines += [("written", record.written)] if record.written else []
    lines += [("report", record.report)] if record.report else []
    lines += [("map", record.map)] if record.map else []
    pages = [("mlflow", mlflow_page(record.mlflow_run_url))]
    pages += [("prefect", prefect_page(f"runs/flow-run/{record.id}"))] if not _is_forgotten(home, record) else []
    lines += [(name, page) for name, page in pages if page]
    if not all(page for _, page in pages):
        lines.append(("pages", f"{graphmill_command('up')} && {graphmill_command('inspect', record.id[:8])}"))
    return lines


def _is_forgotten(home: Home, record: RunRecord) -> bool:
    """Whether Prefect's history no longer has the run, since `graphmill up` keeps those that ended for a while only."""
    settings = read_settings(home) if is_up(home) else None
    return settings is not None and 0 < settings.keep_runs < time.time() - record.started.timestamp()
