"""`graphmill notify add|list|test|remove`."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.deploy.cli import home_server
from flows.terminal.options import HomeOption, JsonOption

app = typer.Typer(no_args_is_help=True, help="Tell somebody of failures, recoveries and new champions.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the channel.")]


@app.command()
def add(
    name: NameArgument,
    webhook: Annotated[str | None, typer.Option("--webhook", metavar="URL", help="POST of {title, text}.")] = None,
    slack: Annotated[str | None, typer.Option("--slack", metavar="URL", help="Slack's incoming webhook.")] = None,
    email: Annotated[
        str | None, typer.Option("--email", metavar="URL", help="mailtos://USER:PASSWORD@HOST?to=X")
    ] = None,
    on: Annotated[
        str, typer.Option("--on", help="Which of failure,recovery,champion,kept (a new model that is no better).")
    ] = "failure,recovery,champion",
    home: HomeOption = None,
) -> None:
    """Make (or renew) a channel.

    Examples: `graphmill notify add team --slack https://hooks.slack.com/services/...`;
    `graphmill notify add me --email "mailtos://me:secret@smtp.example.org?to=me@example.org" --on failure`
    """
    from configs.errors import RecipeError
    from flows.notifications import channels

    given = {"webhook": webhook, "slack": slack, "email": email}
    named = [(kind, url) for kind, url in given.items() if url]
    if len(named) != 1:
        raise RecipeError("name one of --webhook, --slack and --email")
    words = [word.strip() for word in on.split(",") if word.strip()]
    for word in words:
        if word not in channels.OCCASIONS:
            raise RecipeError(f"--on {word!r}; one or more of {', '.join(channels.OCCASIONS)}")
    kind, url = named[0]
    with home_server(home):
        channels.add(channels.Channel(name, kind, url, tuple(words)))  # type: ignore[arg-type]  # checked above
    print(f"{name} is told of {', '.join(words)}; try it with: graphmill notify test {name}")


@app.command(name="list")
def list_all(as_json: JsonOption = False, home: HomeOption = None) -> None:
    """List the channels."""
    from flows.notifications import channels
    from flows.terminal.console import out, print_result, table

    with home_server(home) as (_, client):
        found = channels.listed(client)
    rows = table("channel", "kind", "told of")
    for row in found:
        rows.add_row(*row)
    shown = rows if found else "no channels; make one with: graphmill notify add NAME --slack URL"
    values = [{"name": name, "kind": kind, "on": on.split(", ")} for name, kind, on in found]
    print_result(as_json, {"channels": values}, lambda: out().print(shown))


@app.command(name="test")
def send_test(name: NameArgument, home: HomeOption = None) -> None:
    """Send a message through a channel."""
    from flows.notifications import channels

    with home_server(home) as (_, client):
        channels.send_test(client, name)
    print(f"{name} has a message")


@app.command()
def remove(name: NameArgument, home: HomeOption = None) -> None:
    """Remove a channel."""
    from flows.notifications import channels

    with home_server(home) as (_, client):
        channels.remove(client, name)
    print(f"{name} is removed")
