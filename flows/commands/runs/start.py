"""`graphmill start`: run a deployment now, and follow the run."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from configs.errors import StageError
from flows.terminal.options import HomeOption, graphmill_command

if TYPE_CHECKING:
    from tasks.storage.home import Home

app = typer.Typer()

T = TypeVar("T")

_LOOK_SECONDS = 1.0
_AWAY_SECONDS = 900.0
_LOGS_A_CALL = 200
_PREFECT_S_OWN = ("Beginning flow run", "Finished in", "Downloading flow code")
"""Lines of Prefect's log that say nothing of the run."""


@app.command()
def start(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the deployment.")],
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE",
            help="What its form asks: train.epochs=5, snapshot=2023, only=train,evaluate, force=train.",
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", "-w", help="Follow the run to its end; the exit code is the run's.")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Start a run of a deployment; a worker takes it.

    Examples: `graphmill start nightly --watch`; `graphmill start nightly train.epochs=5 snapshot=2023-06`
    """
    from flows.deploy.starting import start as begin
    from flows.services.environment import open_connected_home

    place = open_connected_home(home)
    run = begin(name, settings or [])
    show_started(run)
    if watch:
        code = follow(place, str(run.id))
        if code:
            raise typer.Exit(code)


def show_started(run: Any) -> None:
    """Say what was started, where it is seen, and whether anybody will take it."""
    from prefect.client.orchestration import get_client

    from flows.services.addresses import prefect_page
    from flows.terminal.console import err, out, print_facts

    page = prefect_page(f"runs/flow-run/{run.id}")
    print_facts(out(), [("started", run.name), ("run", str(run.id)), ("prefect", page)])
    with get_client(sync_client=True) as client:
        workers = client.read_workers_for_work_pool(run.work_pool_name) if run.work_pool_name else []
    if not any(worker.status == "ONLINE" for worker in workers):
        text = f"warning: no worker of pool {run.work_pool_name} is up, the run waits: {graphmill_command('up')}"
        err().print(text, style="yellow", markup=False, soft_wrap=True)


def follow(home: Home, run_id: str) -> int:
    """Print a run's log until it ends, then its outcome; returns the exit code that `graphmill run` would have had."""
    import uuid

    from prefect.client.orchestration import get_client

    from flows.records.run_record import read_record
    from flows.terminal.console import err, out

    seen, state = 0, ""
    with get_client(sync_client=True) as client:
        try:
            while True:
                run = _answer(partial(client.read_flow_run, uuid.UUID(run_id)))
                if run.state_name != state:
                    state = run.state_name or ""
                    err().print(f"{state.lower()}", style="bold", markup=False)
                seen += _answer(partial(_print_log, client, run_id, seen))
                if run.state is not None and run.state.is_final():
                    break
                time.sleep(_LOOK_SECONDS)
        except KeyboardInterrupt:
            err().print(f"the run goes on; see it with: {graphmill_command('inspect', run_id[:8])}", markup=False)
            raise
    record = read_record(home, run_id)
    if record is not None and record.status == "completed":
        from flows.commands.recipes.outcome import show_outcome

        show_outcome(out(), home, record)
    elif not run.state.is_completed():
        why = (record.error if record is not None else "") or run.state.message or state
        err().print(f"error: {why}", markup=False, soft_wrap=True)
    return exit_code(run.state, record.error if record is not None else "")


def _answer(question: Callable[[], T]) -> T:
    """Return the server's answer; while it is away that is said, once, and it is asked again. Raises StageError."""
    from httpx import HTTPError
    from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings

    from flows.services.addresses import is_away
    from flows.terminal.console import err

    since: float | None = None
    while True:
        try:
            with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
                return question()
        except HTTPError as error:
            if not is_away(error):
                raise
            if since is None:
                since = time.monotonic()
                text = (
                    f"the Prefect server does not answer, waiting for it; it is started by: {graphmill_command('up')}"
                )
                err().print(text, style="yellow", markup=False, soft_wrap=True)
            if time.monotonic() - since > _AWAY_SECONDS:
                away = f"the Prefect server has not answered for {_AWAY_SECONDS / 60:.0f} minutes"
                raise StageError(f"{away}; what became of the run says: {graphmill_command('runs')}") from error
            time.sleep(_LOOK_SECONDS)


def exit_code(state: Any, error: str) -> int:
    """Return a run's exit code: 0, 2 for a user's mistake, 130 where it was cancelled, else 1."""
    from configs.errors import UserError, error_of

    if state.is_completed():
        return 0
    if state.is_cancelled():
        return 130
    return 2 if isinstance(error_of(error.partition(":")[0], ""), UserError) else 1


def _print_log(client: Any, run_id: str, seen: int) -> int:
    import uuid

    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
    from prefect.client.schemas.sorting import LogSort

    from flows.terminal.console import err

    mine = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[uuid.UUID(run_id)]))
    lines = client.read_logs(log_filter=mine, limit=_LOGS_A_CALL, offset=seen, sort=LogSort.TIMESTAMP_ASC)
    for line in lines:
        if line.name == "prefect.flow_runs" and not line.message.startswith(_PREFECT_S_OWN):
            err().print(line.message.splitlines()[0], markup=False, soft_wrap=True)
    return len(lines)
