"""Commands on a recipe: run it, plan it, check its data, show it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.records.parameters import NO_PROMOTE_TAG
from flows.terminal.options import (
    HomeOption,
    JsonOption,
    NoPromoteOption,
    TrustOption,
    VerboseOption,
    global_options,
    open_home,
)

app = typer.Typer()


def _complete_recipe(incomplete: str) -> list[str]:
    """Complete names of shipped recipes (without importing what reads them) and of YAML files."""
    shipped = [path.stem for path in (Path(__file__).resolve().parents[3] / "configs").glob("*.yaml")]
    files = [str(path) for path in Path().glob("*.yaml")]
    return sorted(name for name in (*shipped, *files) if name.startswith(incomplete))


def _complete_stage(incomplete: str) -> list[str]:
    from configs.schema import STAGES

    before, comma, last = incomplete.rpartition(",")
    return [before + comma + stage for stage in STAGES if stage.startswith(last)]


RecipeArgument = Annotated[
    str,
    typer.Argument(
        help="Name of a shipped recipe (`graphmill recipes`) or a YAML file.", autocompletion=_complete_recipe
    ),
]
OverridesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Dotted overrides, such as train.epochs=5.")
]
TagOption = Annotated[
    list[str] | None, typer.Option("--tag", help="Tag of the run, for `graphmill runs --tag`; may stand several times.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="STAGE,...", help="Run these stages; what they read is there.", autocompletion=_complete_stage
    ),
]
FromOption = Annotated[
    str | None, typer.Option("--from", metavar="STAGE", help="Begin at this stage.", autocompletion=_complete_stage)
]
ForceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--force", metavar="STAGE,...", help="Build these even where they are cached.", autocompletion=_complete_stage
    ),
]
ClusterOption = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="auto|HOST:PORT",
        help="Train on the machines of a Ray cluster: auto, or its head (cluster.address).",
    ),
]
CheckOption = Annotated[
    bool,
    typer.Option("--check", help="First see whether anything later than a moment reaches the model (check-leaks)."),
]
_SEEDS = 200
"""Seeds that check-leaks compares for each moment."""


def _with_cluster(overrides: list[str] | None, cluster: str | None) -> list[str]:
    """Return the changes of a recipe with what `--cluster` says."""
    if cluster is not None:
        from tasks.cluster.connect import choose_cluster

        choose_cluster(cluster)
    return [*([] if cluster is None else [f"cluster.address={json.dumps(cluster)}"]), *(overrides or ())]


@app.command()
def run(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    only: OnlyOption = None,
    from_stage: FromOption = None,
    force: ForceOption = None,
    tags: TagOption = None,
    cluster: ClusterOption = None,
    check_first: CheckOption = False,
    no_promote: NoPromoteOption = False,
    trust_code: TrustOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Run a recipe; what is there already is found, not made again.

    Examples: `graphmill run quickstart`; `graphmill run ogbl-ddi dataset.root=data/ogb train.epochs=20`;
    `graphmill run quickstart --from train --force train --json`;
    `graphmill run my-graph.yaml train.num_ranks=8 --cluster auto`
    """
    from flows.commands.recipes.outcome import failure_json
    from flows.commands.recipes.run import RunRequest
    from flows.commands.recipes.run import run as execute

    request = RunRequest(
        recipe,
        _with_cluster(overrides, cluster),
        only or [],
        from_stage,
        force or [],
        as_json,
        verbose or global_options.verbose,
        [*(tags or []), *([NO_PROMOTE_TAG] if no_promote else [])],
        _SEEDS if check_first else 0,
    )
    place = open_home(home, trust_code or [])
    try:
        execute(place, request)
    except BaseException as error:
        if as_json:
            print(json.dumps(failure_json(place, recipe, error)), flush=True)
        raise


@app.command()
def plan(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    only: OnlyOption = None,
    from_stage: FromOption = None,
    force: ForceOption = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Say what would run and why, what is cached, and how large it gets; runs nothing.

    Example: `graphmill plan my-graph.yaml train.strategy=partitioned train.num_ranks=4 --cluster auto`
    """
    from configs.load import load_own_recipe
    from flows.commands.recipes.plan import make_plan, plan_cluster, show_plan
    from flows.terminal.console import print_result
    from flows.terminal.progress import Reporter
    from flows.terminal.selection import select_stages
    from tasks.publish.vectors import versions_taken, with_versions

    selection = select_stages(only, from_stage, force)
    place, asked = open_home(home), load_own_recipe(recipe, _with_cluster(overrides, cluster))
    checked = with_versions(asked, place)
    versions = versions_taken(asked, checked)
    steps = make_plan(place, checked, selection, Reporter().progress)
    placed = plan_cluster(place, checked, steps)
    values = {"recipe": recipe, "stages": [step.as_json() for step in steps], "vectors": dict(versions)}
    print_result(as_json, {**values, "cluster": placed}, lambda: show_plan(steps, versions, placed))


@app.command()
def check(
    recipe: RecipeArgument, overrides: OverridesArgument = None, as_json: JsonOption = False, home: HomeOption = None
) -> None:
    """Read and check a recipe's data, nothing else: what stands in it, and all that is wrong with it.

    Example: `graphmill check my-graph.yaml dataset.nodes.on_duplicate_id=first`
    """
    from configs.load import load_own_recipe
    from flows.commands.recipes.check import check_recipe

    if not check_recipe(open_home(home), load_own_recipe(recipe, overrides or ()), as_json=as_json):
        raise typer.Exit(2)


@app.command("check-leaks")
def leaks(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=100_000, help="Seeds compared for each moment.")] = _SEEDS,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Change all data from the moments on that validate and test, and see whether inputs stay equal to the bit.

    For data sets that predict rows at moments. Exit code 2: something of it reaches the model, or a column tells the
    label by itself. Example: `graphmill check-leaks shop`
    """
    from configs.load import load_own_recipe
    from flows.commands.recipes.leaks import find_leaks

    if not find_leaks(open_home(home), load_own_recipe(recipe, overrides or ()), seeds, as_json=as_json):
        raise typer.Exit(2)


@app.command()
def baseline(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    only_list: Annotated[bool, typer.Option("--list", help="Show what is done; run nothing.")] = False,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=1000, help="Runs, of the seeds 0, 1, ...")] = 5,
    home: HomeOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Mean and spread of a recipe over seeds; what is done already is not run again.

    Example: `graphmill baseline my-graph.yaml train.epochs=50 --seeds 5`
    """
    from flows.commands.recipes.baseline import run_baseline

    verbose = verbose or global_options.verbose
    if not run_baseline(open_home(home), recipe, overrides or [], seeds, only_list=only_list, verbose=verbose):
        raise typer.Exit(1)


@app.command("import")
def import_recipe(
    what: Annotated[Literal["graphstorm"], typer.Argument(help="Whose description of a graph it is.")],
    description: Annotated[str, typer.Argument(metavar="FILE", help="The JSON of graph construction (gconstruct).")],
    out: Annotated[
        str | None, typer.Option("--out", metavar="FOLDER", help="Folder of the recipe; default: beside the JSON.")
    ] = None,
    task: Annotated[
        int, typer.Option("--task", min=1, help="Which of the labels that can be predicted here, from 1.")
    ] = 1,
    as_json: JsonOption = False,
) -> None:
    """Write a recipe over the tables that another system's description of a graph names.

    What a recipe cannot say is printed, and stands as comments in it. Tables stay where they are; JSON lines are
    written as Parquet into the folder. Example: `graphmill import graphstorm movielens.json --out movielens`
    """
    from flows.terminal.console import err, print_result
    from tasks.ingest.graphstorm.recipe import import_graphstorm

    recipe, notes = import_graphstorm(description, out, task)

    def show() -> None:
        for note in notes:
            err().print(f"not as it was: {note}", markup=False, highlight=False, soft_wrap=True)
        print(recipe)

    print_result(as_json, {"recipe": str(recipe), "notes": notes}, show)


@app.command()
def recipes() -> None:
    """List the shipped recipes."""
    from flows.commands.recipes.components import list_recipes

    list_recipes()


@app.command()
def show(
    recipe: RecipeArgument, overrides: OverridesArgument = None, as_json: JsonOption = False, home: HomeOption = None
) -> None:
    """Print the whole recipe, defaults included, with what each option means (YAML that `run` reads).

    A registered model whose vectors are features stands there with the version that a run would take now.
    """
    from configs.load import dump_recipe, load_own_recipe
    from flows.commands.recipes.components import commented_yaml, with_known_versions

    checked = with_known_versions(load_own_recipe(recipe, overrides or ()), lambda: open_home(home))
    print(json.dumps(dump_recipe(checked)) if as_json else commented_yaml(checked), end="\n" if as_json else "")
