"""`graphmill deploy`, `deployments`, `undeploy`, `pause`, `resume`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.terminal.options import HomeOption, JsonOption, NoPromoteOption

if TYPE_CHECKING:
    from tasks.storage.home import Home

app = typer.Typer()
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the deployment.")]

NodesOption = Annotated[str | None, typer.Option("--nodes", metavar="FILE", help="Of --predict: file of node ids.")]
PairsOption = Annotated[str | None, typer.Option("--pairs", metavar="FILE", help="Of --predict: file of pairs.")]
EdgesOption = Annotated[
    str | None, typer.Option("--edges", metavar="FILE", help="Of --predict: file of edge_id or row of edges.")
]
GraphsOption = Annotated[str | None, typer.Option("--graphs", metavar="FILE", help="Of --predict: file of graph ids.")]
QueriesOption = Annotated[
    str | None, typer.Option("--queries", metavar="FILE", help="Of --predict: file of triples to complete.")
]


@app.command()
def deploy(
    *,
    recipe: Annotated[
        str | None, typer.Argument(help="Name of a shipped recipe or a YAML file; with --predict that of the data.")
    ] = None,
    name: Annotated[str, typer.Option("--name", metavar="N", help="Name of the deployment.")],
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Dotted override; may stand several times.")
    ] = None,
    cron: Annotated[str | None, typer.Option("--cron", metavar='"M H D M W"', help="When: `0 3 * * *`.")] = None,
    timezone: Annotated[
        str | None, typer.Option("--timezone", metavar="T", help="Of --cron: Europe/Berlin; default: this machine's.")
    ] = None,
    every: Annotated[str | None, typer.Option("--every", metavar="6h", help="How often: 30m, 6h, 1d, 2w.")] = None,
    snapshot: Annotated[
        str | None,
        typer.Option("--snapshot", metavar="MOMENT", help="Graph as of a moment; `scheduled`: of each run's start."),
    ] = None,
    predict: Annotated[
        str | None,
        typer.Option("--predict", metavar="NAME@champion", help="Do not train: predict with a registered model."),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Of --predict: file to write; {date} and {time} stand for the scheduled start.",
            show_default="NAME-predictions-{date}.parquet",
        ),
    ] = None,
    nodes: NodesOption = None,
    edges: EdgesOption = None,
    pairs: PairsOption = None,
    graphs: GraphsOption = None,
    queries: QueriesOption = None,
    keep_layers: Annotated[
        bool, typer.Option("--keep-layers", help="Of --predict: compute only what has changed since the last time.")
    ] = False,
    pool: Annotated[str, typer.Option("--pool", metavar="P", help="Prefect work pool.")] = "graphmill",
    no_promote: NoPromoteOption = False,
    home: HomeOption = None,
) -> None:
    """Give a recipe a place on the server: a schedule, a form in Prefect's pages, backfills. Or a model's predictions.

    Examples: `graphmill deploy quickstart --name nightly --cron "0 3 * * *" --timezone Europe/Berlin`;
    `graphmill deploy my-graph.yaml --name hourly --every 1h --set train.epochs=5 --snapshot scheduled`;
    `graphmill deploy my-graph.yaml --predict my-graph@champion --name mornings --cron "0 6 * * *" -o {date}.parquet`
    """
    from configs.errors import RecipeError
    from flows.deploy.deployments import DeployRequest
    from flows.deploy.deployments import deploy as make
    from flows.deploy.tables import show_deployed
    from flows.services.environment import open_connected_home

    request = DeployRequest(recipe or "", name, settings or [], cron, timezone, every, snapshot, pool, no_promote)
    files = {"nodes": nodes, "edges": edges, "pairs": pairs, "graphs": graphs, "queries": queries}
    place = open_connected_home(home)
    if predict is not None and no_promote:
        raise RecipeError("--no-promote goes with a recipe's runs; what --predict makes publishes no version")
    if predict is not None:
        from flows.deploy.predictions import deploy_predictions
        from flows.records.use_options import UseOptions

        deploy_predictions(place, request, predict, UseOptions(output=output, keep_layers=keep_layers, **files))
    elif recipe is None:
        raise RecipeError("deploy what? name a recipe, or a model by which to predict: --predict NAME@champion")
    elif output is not None or keep_layers or any(files.values()):
        raise RecipeError("--output, --keep-layers and files of what is asked about go with --predict NAME@champion")
    else:
        make(place, request)
    show_deployed(name)


@app.command()
def deployments(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List deployments with their schedules, next and last runs."""
    from flows.deploy.deployments import list_deployments
    from flows.deploy.tables import show_deployments
    from flows.terminal.console import print_result

    with home_server(home) as (_, client):
        rows = list_deployments(client)
    print_result(as_json, {"deployments": [row.as_json() for row in rows]}, lambda: show_deployments(rows))


@app.command()
def undeploy(name: NameArgument, home: HomeOption = None) -> None:
    """Remove a deployment; its past runs stay."""
    from flows.deploy.deployments import find_deployment

    with home_server(home) as (_, client):
        client.delete_deployment(find_deployment(client, name).id)
    print(f"{name} is removed")


@app.command()
def pause(name: NameArgument, home: HomeOption = None) -> None:
    """Stop a deployment's schedule; it can still be started by hand."""
    from flows.deploy.deployments import find_deployment

    with home_server(home) as (_, client):
        client.pause_deployment(find_deployment(client, name).id)
    print(f"{name} is paused; go on with: graphmill resume {name}")


@app.command()
def resume(name: NameArgument, home: HomeOption = None) -> None:
    """Go on with a paused deployment's schedule."""
    from flows.deploy.deployments import find_deployment

    with home_server(home) as (_, client):
        client.resume_deployment(find_deployment(client, name).id)
    print(f"{name} goes on")


@contextmanager
def home_server(home: Path | None) -> Iterator[tuple[Home, Any]]:
    """Open the home and yield it with a client of its Prefect server. Raises StageError where none answers."""
    from flows.deploy.deployments import server
    from flows.services.environment import open_connected_home

    place = open_connected_home(home)
    with server() as client:
        yield place, client
