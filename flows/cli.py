"""The `graphmill` command. Everything heavy is imported inside of the commands: `--help` answers in a moment."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from typing import Annotated, Any

import typer

from flows.backfill import cli as backfill_cli
from flows.cluster import cli as cluster_cli
from flows.commands.installation import cli as installation_cli
from flows.commands.installation import trust
from flows.commands.outputs import cli as outputs_cli
from flows.commands.outputs import layouts
from flows.commands.recipes import cli as recipes_cli
from flows.commands.recipes import component_lists
from flows.commands.runs import cli as runs_cli
from flows.commands.runs import start
from flows.deploy import cli as deploy_cli
from flows.notifications import cli as notifications_cli
from flows.services import cli as services_cli
from flows.terminal.options import HomeOption, VerboseOption, global_options
from tasks.processes.users import stand_in_for_user
from tasks.storage.home import home_path

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

_PANELS = {
    "Recipes": (recipes_cli,),
    "What recipes can name": (component_lists,),
    "Runs and models": (runs_cli, outputs_cli, layouts),
    "Services and schedules": (services_cli, deploy_cli, start),
    "This installation": (installation_cli, trust),
}
for panel, groups in _PANELS.items():
    for group in groups:
        for command in group.app.registered_commands:
            command.rich_help_panel = panel
        app.add_typer(group.app)
app.add_typer(cluster_cli.app, name="cluster", rich_help_panel="Services and schedules")
app.add_typer(backfill_cli.app, name="backfill", rich_help_panel="Services and schedules")
app.add_typer(notifications_cli.app, name="notify", rich_help_panel="Services and schedules")


def _version(asked: bool) -> None:
    if asked:
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
    global_options.home, global_options.verbose = home, verbose
    global_options.debug = debug or os.environ.get("GRAPHMILL_DEBUG", "") not in ("", "0")


def main() -> None:
    """Run the command: exit code 0 on success, 2 for a user's mistake, 130 on Ctrl-C, 1 for everything else."""
    os.environ["PYTHONSAFEPATH"] = "1"  # processes that we start take no modules from the current folder
    _open_closed_streams()
    try:
        stand_in_for_user(home_path(_named_home(sys.argv)))
        app()  # usage mistakes exit with 2 and Ctrl-C with 130 by themselves
    except BrokenPipeError:  # `graphmill show x | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (SystemExit, KeyboardInterrupt) as error:
        _exit(130 if isinstance(error, KeyboardInterrupt) else error.code)
    except BaseException as error:
        of_pydantic = isinstance(error, ValueError) and "KeyboardInterrupt" in str(error)  # what it makes of Ctrl-C
        _exit(130 if of_pydantic else _report(error))


def _named_home(words: list[str]) -> str | None:
    """Return the home that the command line names, before it is read: what commands import may ask for the user's."""
    for word, following in zip(words, [*words[1:], ""], strict=True):
        if word == "--home" or word.startswith("--home="):
            return word.partition("=")[2] or following
    return None


def _open_closed_streams() -> None:
    """Let what was closed for us (`>&-`, some supervisors) lead nowhere; the next file would take its number else."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(opened, True)
            setattr(sys, name, os.fdopen(opened, "w" if number else "r"))


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
    from configs.registry import line_of_component
    from tasks.storage.home import Home
    from tasks.storage.home_files.trouble import as_trouble, trouble_of_the_machine

    if global_options.debug:
        traceback.print_exception(error)
    if isinstance(error, Exception) and global_options.opened is not None:
        error = as_trouble(error, Home(global_options.opened))
    if isinstance(error, GraphmillError):
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, UntrustedCodeError) and error.digest:
            print(f"To go on: {trust.how_to_go_on(sys.argv[1:], error.digest)}", file=sys.stderr)
        return 2 if isinstance(error, UserError) else 1
    if not isinstance(error, Exception):  # SIGTERM, as graphmill's or Prefect's signal
        from tasks.processes import ending

        print(ending.last_words(), file=sys.stderr)
        return 1
    trouble = trouble_of_the_machine(error)
    if trouble is not None:
        print(f"error: {trouble}", file=sys.stderr)
        return 1
    place = line_of_component(error)
    if place and not global_options.debug:
        traceback.print_exception(error)
    print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
    if place:
        print(f"(it arose in {place}: if that file is yours, mend it there, else please report it)", file=sys.stderr)
    elif not global_options.debug:
        print("(graphmill --debug ... shows where; please report it, this should not happen)", file=sys.stderr)
    return 1


if __name__ == "__main__":
    main()
