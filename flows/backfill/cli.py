"""`graphmill backfill create|list|status|watch|pause|resume|cancel|retry-failed|report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.deploy.cli import home_server
from flows.terminal.options import HomeOption, JsonOption
from flows.terminal.waiting import waiting

app = typer.Typer(no_args_is_help=True, help="Run a deployed recipe over past snapshots or a grid of options.")

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="Of the backfill (`graphmill backfill list`).")]


@app.command()
def create(
    deployment: Annotated[str, typer.Argument(metavar="DEPLOYMENT", help="Name (`graphmill deployments`).")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUES", help="More of --grid: seed=0..4, model.name=gcn,gat.")
    ] = None,
    first: Annotated[
        str | None, typer.Option("--from", metavar="DATE", help="First snapshot: 2021, 2021-06-30.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", metavar="DATE", help="Last snapshot.")] = None,
    every: Annotated[
        Literal["year", "month", "week", "day", "hour", "version"] | None,
        typer.Option("--every", help="version: of tables that keep their versions."),
    ] = None,
    at: Annotated[str | None, typer.Option("--at", metavar="A,B,...", help="These snapshots.")] = None,
    grid: Annotated[
        list[str] | None, typer.Option("--grid", metavar="KEY=VALUES", help="seed=0..4, train.epochs=5,9.")
    ] = None,
    reprocess: Annotated[
        Literal["missing", "failed", "all"],
        typer.Option(
            "--reprocess",
            help="missing: partitions without a result; failed: those that failed in earlier backfills; "
            "all: train anew.",
        ),
    ] = "missing",
    max_active: Annotated[int, typer.Option("--max-active", min=1, help="Partitions at a time.")] = 1,
    reverse: Annotated[bool, typer.Option("--reverse", help="The newest snapshot first.")] = False,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override of all partitions.")
    ] = None,
    promote: Annotated[
        bool, typer.Option("--promote", help="Let the gate make one of its models champion; else it is left alone.")
    ] = False,
    name: Annotated[
        str | None, typer.Option("--id", metavar="NAME", help="Id; by default made of what is asked.")
    ] = None,
    pause_schedule: Annotated[
        bool, typer.Option("--pause-schedule", help="Hold the deployment's schedule until the backfill has ended.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would run, stage by stage; make nothing.")
    ] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Make a backfill: one run a partition, in its own queue. Made twice it is still one; cut off, make it again.

    Examples: `graphmill backfill create nightly --from 2021 --to 2026 --every year --max-active 2`;
    `graphmill backfill create nightly --grid model.name=gcn,graphsage seed=0..4`
    """
    from flows.backfill import actions, tables
    from flows.backfill.spec import Backfill, check_id, default_id, parse_grid
    from flows.terminal.console import print_result

    axes = [*(grid or ()), *(more or ())]
    moments = tuple(text.strip() for text in (at or "").split(",") if text.strip())
    if (first or last) and not every:
        every = "day" if "-" in (first or last or "") else "year"
    words = [*filter(None, (first, last, every, *moments)), *axes, *(settings or ())]
    words += [] if reprocess == "missing" else [reprocess]
    words += [word for word, asked in (("reverse", reverse), ("promote", promote)) if asked]
    backfill = Backfill(
        id=check_id(name) if name else default_id(deployment, words),
        deployment=deployment,
        first=first,
        last=last,
        every=every,
        at=moments,
        grid=parse_grid(axes),
        overrides=tuple(settings or ()),
        reprocess=reprocess,
        max_active=max_active,
        reverse=reverse,
        promote=promote,
    )
    backfill.partitions()  # refuse what cannot be before a server is asked
    with home_server(home) as (place, client), waiting("planning the partitions"):
        backfill = actions.over_versions(client, backfill)
        if dry_run:
            planned = actions.plan(client, place, backfill)
        else:
            backfill, planned = actions.create(client, place, backfill, pause_schedule=pause_schedule)
    show = tables.show_plan if dry_run else tables.show_created
    print_result(as_json, _plan_json(backfill, planned), lambda: show(backfill, planned))


@app.command(name="list")
def list_all(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List all backfills."""
    from flows.backfill import store, tables
    from flows.backfill.status import read_status
    from flows.terminal.console import print_result

    with home_server(home) as (_, client):
        statuses = [read_status(client, backfill) for backfill in store.all_backfills(client)]
    values = [{**status.backfill.model_dump(mode="json"), "counts": status.counts} for status in statuses]
    print_result(as_json, {"backfills": values}, lambda: tables.show_list(statuses))


@app.command()
def status(backfill_id: IdArgument, as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Show every partition: state, time, attempts, metrics. Exit code 1 where one failed or crashed."""
    from flows.backfill import store, tables
    from flows.backfill.status import read_status, with_results
    from flows.terminal.console import print_result

    with home_server(home) as (place, client):
        progress = with_results(client, place, read_status(client, store.get(client, backfill_id)))
    print_result(as_json, progress.as_json(), lambda: tables.show_status(progress))
    if any(row.state in ("failed", "crashed") for row in progress.rows):
        raise typer.Exit(1)


@app.command()
def watch(backfill_id: IdArgument, home: HomeOption = None) -> None:
    """Follow a backfill until all partitions have ended; Ctrl-C ends the watching only. Exit code 0 if all is well."""
    from flows.backfill import actions, store, tables
    from flows.backfill.status import with_results

    with home_server(home) as (place, client):
        ended = tables.watch(client, store.get(client, backfill_id))
        actions.settle_tracking(client, place, store.get(client, backfill_id))
        tables.show_status(with_results(client, place, ended))
    if not ended.good:
        raise typer.Exit(1)


@app.command()
def pause(backfill_id: IdArgument, home: HomeOption = None) -> None:
    """Start no more partitions; those that run go on."""
    from flows.backfill import actions, store

    with home_server(home) as (_, client):
        actions.pause(client, store.get(client, backfill_id), True)
    print(f"{backfill_id} is paused; go on with: graphmill backfill resume {backfill_id}")


@app.command()
def resume(backfill_id: IdArgument, home: HomeOption = None) -> None:
    """Go on with a paused backfill."""
    from flows.backfill import actions, store

    with home_server(home) as (_, client):
        actions.pause(client, store.get(client, backfill_id), False)
    print(f"{backfill_id} goes on")


@app.command()
def cancel(backfill_id: IdArgument, home: HomeOption = None) -> None:
    """Cancel what waits and what runs; results that are there stay."""
    from flows.backfill import actions, store

    with home_server(home) as (place, client):
        number = actions.cancel(client, store.get(client, backfill_id))
        actions.settle_tracking(client, place, store.get(client, backfill_id))
    print(f"{backfill_id}: {number} {'run' if number == 1 else 'runs'} cancelled")


@app.command()
def remove(backfill_id: IdArgument, home: HomeOption = None) -> None:
    """Forget a backfill whose runs have all ended; runs and results stay."""
    from flows.backfill import actions, store

    with home_server(home) as (_, client):
        actions.remove(client, store.get(client, backfill_id))
    print(f"{backfill_id} is removed")


@app.command(name="retry-failed")
def retry_failed(backfill_id: IdArgument, home: HomeOption = None) -> None:
    """Run again what failed or crashed, from where it stopped."""
    from flows.backfill import actions, store

    with home_server(home) as (place, client):
        retried = actions.retry_failed(client, store.get(client, backfill_id))
        actions.settle_tracking(client, place, store.get(client, backfill_id))
    print(f"{backfill_id}: " + (f"scheduled again: {', '.join(retried)}" if retried else "nothing has failed"))


@app.command()
def report(
    backfill_id: IdArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Default: ID.html.")] = None,
    home: HomeOption = None,
) -> None:
    """Write one page: metrics over snapshots or over the grid, times, what was shared."""
    from flows.backfill import store
    from flows.backfill.report import write_report
    from flows.backfill.status import read_status, with_results
    from tasks.storage.file_names import file_name

    with home_server(home) as (place, client):
        progress = with_results(client, place, read_status(client, store.get(client, backfill_id)))
        print(write_report(progress, output or Path(f"{file_name(backfill_id)}.html")))


def _plan_json(backfill: Any, planned: list[Any]) -> dict[str, Any]:
    return {
        **backfill.model_dump(mode="json"),
        "partitions": [
            {
                "name": item.partition.name,
                "snapshot": item.partition.snapshot,
                "overrides": list(item.partition.overrides),
                "skip": item.skip or None,
                "stages": {step.stage: step.status for step in item.steps},
            }
            for item in planned
        ],
    }
