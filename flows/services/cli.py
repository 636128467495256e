"""`graphmill up`, `down`, `status`, `logs`, `worker`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.terminal.options import HomeOption, JsonOption, open_home

app = typer.Typer()
MOST_LINES = 10_000_000
"""Far more than a log is kept of."""


@app.command()
def up(
    host: Annotated[
        str | None, typer.Option("--host", help="Interface to listen on; anything but loopback demands credentials.")
    ] = None,
    public_name: Annotated[
        list[str] | None,
        typer.Option(
            "--public-name", metavar="HOST[:PORT]", help="Host name that browsers use; may stand several times."
        ),
    ] = None,
    prefect_port: Annotated[
        int | None, typer.Option("--prefect-port", min=0, max=65535, help="Default: 4200, or a free one; kept. 0: any.")
    ] = None,
    mlflow_port: Annotated[
        int | None, typer.Option("--mlflow-port", min=0, max=65535, help="Default: 5000, or a free one; kept. 0: any.")
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            "--database",
            metavar="URL",
            help="PostgreSQL (postgresql+asyncpg://USER:PASSWORD@HOST/NAME), or `sqlite`, the default.",
        ),
    ] = None,
    pool: Annotated[str | None, typer.Option("--pool", help="Prefect work pool of the worker.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Runs at a time.")] = None,
    keep_events: Annotated[
        str | None,
        typer.Option("--keep-events", metavar="AGE", help="How long Prefect keeps events: 7d; or `forever`. Kept."),
    ] = None,
    keep_runs: Annotated[
        str | None,
        typer.Option(
            "--keep-runs", metavar="AGE", help="How long its history keeps ended runs: 90d; or `forever`. Kept."
        ),
    ] = None,
    foreground: Annotated[bool, typer.Option("--foreground", help="Stay, and end the services on Ctrl-C.")] = False,
    home: HomeOption = None,
) -> None:
    """Start Prefect's server, MLflow's server and a worker, and keep them running; options are kept for the next time.

    Examples: `graphmill up`; `graphmill up --host 0.0.0.0 --public-name train.example.org`;
    `graphmill up --database postgresql+asyncpg://me:secret@localhost/graphmill --limit 8`
    """
    from flows.services.operation import bring_up

    options = {
        "host": host,
        "public_names": tuple(public_name) if public_name else None,
        "prefect_port": prefect_port,
        "mlflow_port": mlflow_port,
        "database": database,
        "pool": pool,
        "limit": limit,
        "keep_events": keep_events,
        "keep_runs": keep_runs,
    }
    named = {name: value for name, value in options.items() if value is not None}
    bring_up(open_home(home), named, foreground=foreground)


@app.command()
def down(home: HomeOption = None) -> None:
    """End the services; runs under way are ended too and go on from their last checkpoint when they are run again."""
    from flows.services.operation import bring_down

    bring_down(open_home(home))


@app.command()
def status(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """Say what runs, where, and since when; exit code 1 unless all services are healthy."""
    from flows.services.status import show_status

    if not show_status(open_home(home), as_json=as_json):
        raise typer.Exit(1)


@app.command()
def logs(
    service: Annotated[str, typer.Argument(metavar="SERVICE", help="prefect, mlflow, worker or supervisor.")],
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=1, max=MOST_LINES, help="How many of the last lines.")
    ] = 50,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows.")] = False,
    home: HomeOption = None,
) -> None:
    """Show a service's log."""
    from flows.services.status import show_log

    show_log(open_home(home), service, lines, follow=follow)


@app.command()
def worker(
    pool: Annotated[str, typer.Option("--pool", help="Prefect work pool.")] = "graphmill",
    limit: Annotated[int, typer.Option("--limit", min=1, help="Runs at a time.")] = 2,
    home: HomeOption = None,
) -> None:
    """Run a worker in the foreground for the servers of PREFECT_API_URL and MLFLOW_TRACKING_URI (further machines)."""
    from flows.services.operation import run_worker

    run_worker(open_home(home), pool, limit)
