"""The `graphmill` command. Everything heavy is imported inside of the commands: `--help` answers in a moment."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from flows.backfill import cli as backfill_cli
from flows.commands import models as model_commands
from flows.commands import start as start_commands
from flows.commands import trust as trust_commands
from flows.deploy import cli as deploy_cli
from flows.notifications import cli as notifications_cli
from flows.services import cli as services_cli
from flows.terminal.options import HomeOption, JsonOption, TrustOption, VerboseOption, before, open_home

_EPILOG = """Examples:

graphmill run quickstart

graphmill run ogbn-arxiv train.epochs=50 model=gcn

graphmill plan my-graph.yaml train.learning_rate=0.01

graphmill inspect quickstart partition

`graphmill COMMAND --help` says more."""

app = typer.Typer(
    name="graphmill",
    help="Turn a large graph into a trained, evaluated and registered model; do again only what changed.",
    epilog=_EPILOG,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
)

for commands in (services_cli.app, deploy_cli.app, start_commands.app, model_commands.app, trust_commands.app):
    app.add_typer(commands)
app.add_typer(backfill_cli.app, name="backfill")
app.add_typer(notifications_cli.app, name="notify")


def _complete_recipe(incomplete: str) -> list[str]:
    """Complete names of shipped recipes (without importing what reads them) and of YAML files."""
    shipped = [path.stem for path in (Path(__file__).parent.parent / "configs").glob("*.yaml")]
    files = [str(path) for path in Path().glob("*.yaml")]
    return sorted(name for name in (*shipped, *files) if name.startswith(incomplete))


def _complete_stage(incomplete: str) -> list[str]:
    """Complete the last of `a,b,c`."""
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
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Dotted overrides, such as train.epochs=5.")
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


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"graphmill {version('graphmill')}")
        raise typer.Exit


@app.callback()
def _options(
    home: HomeOption = None,
    verbose: VerboseOption = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks [env: GRAPHMILL_DEBUG].")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    before.home, before.verbose = home, verbose
    before.debug = debug or os.environ.get("GRAPHMILL_DEBUG", "") not in ("", "0")


@app.command()
def run(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    only: OnlyOption = None,
    from_stage: FromOption = None,
    force: ForceOption = None,
    tags: TagOption = None,
    trust_code: TrustOption = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Run a recipe; what is there already is found, not made again.

    Examples: `graphmill run quickstart`; `graphmill run ogbl-ddi dataset.root=data/ogb train.epochs=20`;
    `graphmill run quickstart --from train --force train --json`
    """
    from flows.commands.run import RunRequest, failure_json
    from flows.commands.run import run as execute

    request = RunRequest(
        recipe, overrides or [], only or [], from_stage, force or [], as_json, verbose or before.verbose, tags or []
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
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Say what would run and why, what is cached, and how large it gets; runs nothing."""
    from configs.load import load_own_recipe
    from flows.commands.plan import make_plan, show_plan
    from flows.terminal.console import Reporter
    from flows.terminal.selection import select_stages

    selection = select_stages(only, from_stage, force)
    steps = make_plan(open_home(home), load_own_recipe(recipe, overrides or ()), selection, Reporter().progress)
    if as_json:
        print(json.dumps({"recipe": recipe, "stages": [step.as_json() for step in steps]}))
    else:
        show_plan(steps)


@app.command()
def check(
    recipe: RecipeArgument,
    overrides: OverridesArgument = None,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Read and check a recipe's data, nothing else: what stands in it, and all that is wrong with it.

    Example: `graphmill check my-graph.yaml dataset.nodes.on_duplicate_id=first`
    """
    from configs.load import load_own_recipe
    from flows.commands.check import check_recipe

    if not check_recipe(open_home(home), load_own_recipe(recipe, overrides or ()), as_json=as_json):
        raise typer.Exit(2)


@app.command()
def recipes() -> None:
    """List the shipped recipes."""
    from flows.commands.components import list_recipes

    list_recipes()


@app.command()
def datasets() -> None:
    """List the kinds of data sets that a recipe can name."""
    from configs.registry import DATASETS
    from flows.commands.components import list_components

    list_components(DATASETS)


@app.command()
def models() -> None:
    """List the models."""
    from configs.registry import MODELS
    from flows.commands.components import list_components

    list_components(MODELS)


@app.command()
def partitioners() -> None:
    """List the partitioners."""
    from configs.registry import PARTITIONERS
    from flows.commands.components import list_components

    list_components(PARTITIONERS)


@app.command()
def show(recipe: RecipeArgument, overrides: OverridesArgument = None, as_json: JsonOption = False) -> None:
    """Print the whole recipe, defaults included, with what each option means (YAML that `run` reads)."""
    from configs.load import dump_recipe, load_own_recipe
    from flows.commands.components import commented_yaml

    checked = load_own_recipe(recipe, overrides or ())
    print(json.dumps(dump_recipe(checked)) if as_json else commented_yaml(checked), end="\n" if as_json else "")


@app.command()
def inspect(
    what: Annotated[
        str,
        typer.Argument(metavar="NAME", help="A run's id, a recipe (its latest run), or an artifact's key or folder."),
    ],
    stage: Annotated[
        str | None, typer.Argument(metavar="[STAGE]", help="The artifact of this stage of the run.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write the artifact's plots into this folder.")
    ] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every file with its sha256.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Show a run and its stages, or an artifact: `inspect quickstart`, then `inspect quickstart train -o plots`."""
    from flows.commands.inspection import Found, find, show_artifact, show_run, write_plots

    place = open_home(home)
    found = find(place, what, stage, deep=verify)
    if as_json:
        print((found.manifest if isinstance(found, Found) else found).model_dump_json())
    elif isinstance(found, Found):
        show_artifact(place, found, verified=verify)
    else:
        show_run(place, found)
    if output is not None and isinstance(found, Found):
        write_plots(found, output)


@app.command()
def doctor(home: HomeOption = None) -> None:
    """Check this installation: each line is ok, or says how to mend it."""
    from flows.commands.doctor import examine

    if not examine(open_home(home)):
        raise typer.Exit(1)


@app.command()
def clean(
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="Keep what runs of this age used: 12h, 7d, 4w.")
    ] = "7d",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be removed, remove nothing.")] = False,
    as_json: JsonOption = False,
    home: HomeOption = None,
) -> None:
    """Remove artifacts that no run needs: neither the latest successful run of a recipe nor a younger one."""
    from flows.commands.clean import clean_home, parse_age, show_removed

    removed = clean_home(open_home(home), parse_age(older_than), dry_run=dry_run)
    if as_json:
        print(json.dumps({"removed": [item.as_json() for item in removed], "bytes": sum(r.num_bytes for r in removed)}))
    else:
        show_removed(removed, dry_run=dry_run)


@app.command()
def baseline(
    table: Annotated[
        str,
        typer.Argument(metavar="TABLE|RECIPE", help="Table of reference results (gnn), or a recipe (FILE.yaml)."),
    ],
    keywords: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEYWORD]...", help="Only rows that have all of these words; of a recipe: changes, KEY=VALUE."
        ),
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Show the rows and what is done; run nothing.")] = False,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, max=1000, help="Runs of each row, instead of its own; of a recipe: 5."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", help="Where the data sets are [env: GRAPHMILL_DATA].")
    ] = None,
    home: HomeOption = None,
    verbose: VerboseOption = False,
) -> None:
    """Mean and spread over seeds, of published results or a recipe; what is done already is not run again.

    Examples: `graphmill baseline gnn cora`; `graphmill baseline my-graph.yaml train.epochs=50 --seeds 5`
    """
    from flows.baseline.command import BaselineRequest, list_rows, run_baseline
    from flows.baseline.own import is_recipe, run_own

    request = BaselineRequest(table, keywords or [], seeds, data, verbose or before.verbose)
    if is_recipe(table):
        if not run_own(open_home(home), request, only_list=only_list):
            raise typer.Exit(1)
    elif only_list:
        list_rows(open_home(home), request)
    elif not run_baseline(open_home(home), request):
        raise typer.Exit(1)


@app.command()
def schema(
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it here.")] = None,
) -> None:
    """Print the JSON Schema of a recipe, for editors (`# yaml-language-server: $schema=FILE`)."""
    from configs.errors import RecipeError
    from flows.commands.recipe_schema import recipe_schema

    text = json.dumps(recipe_schema(), indent=1)
    if output is None:
        print(text)
    elif output.is_dir() or not output.parent.is_dir():
        raise RecipeError(f"--output {output} is no name of a file in a folder that there is")
    else:
        output.write_text(text + "\n", encoding="utf-8")
        print(output)


def main() -> None:
    """Run the command: exit code 0 on success, 2 for a user's mistake, 130 on Ctrl-C, 1 for everything else."""
    os.environ["PYTHONSAFEPATH"] = "1"  # processes that we start take no modules from the current folder
    try:
        app()  # usage mistakes exit with 2 and Ctrl-C with 130 by themselves
    except BrokenPipeError:  # `graphmill show x | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (SystemExit, KeyboardInterrupt) as error:
        _exit(130 if isinstance(error, KeyboardInterrupt) else error.code)
    except BaseException as error:
        _exit(130 if _is_interrupt(error) else _report(error))


def _is_interrupt(error: BaseException) -> bool:
    """Whether an error is what pydantic makes of Ctrl-C while it writes."""
    return isinstance(error, ValueError) and "KeyboardInterrupt" in str(error)


def _exit(code: Any) -> None:
    from tasks.processes import ending

    if ending.is_ending():  # all is closed, and the interpreter's own end takes seconds after torch and Prefect
        if code == 130:
            print(ending.last_words(), file=sys.stderr)
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


def _report(error: BaseException) -> int:
    """Say in one line what went wrong; with --debug where."""
    from configs.errors import GraphmillError, UntrustedCodeError, UserError

    if before.debug:
        import traceback

        traceback.print_exception(error)
    if isinstance(error, GraphmillError):
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, UntrustedCodeError) and error.digest:
            print(f"To go on: {trust_commands.how_to_go_on(sys.argv[1:], error.digest)}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    if not isinstance(error, Exception):  # SIGTERM, as graphmill's or Prefect's signal
        from tasks.processes import ending

        print(ending.last_words(), file=sys.stderr)
        return 1
    from flows.terminal.room import trouble_of_the_machine

    trouble = trouble_of_the_machine(error)
    if trouble is not None:
        print(f"error: {trouble}", file=sys.stderr)
        return 1
    hint = "" if before.debug else "\n(graphmill --debug ... shows where; please report it, this should not happen)"
    print(f"error: {type(error).__name__}: {error}{hint}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
